"""The proof: on random graphs, the module's own forward and the written program agree.

The program is the one that was written and read back, run by the float64 reference. All that the
module reads are random numbers, other ones on each graph, and the graphs are others
than the module was recorded on (`trials`), so that whatever was taken from that graph shows. One
copy of the module runs on all of them, so that what it keeps shows as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from embertide.errors import ModelError
from embertide.models.folder import UNTRAINED, untrained_norms
from embertide.models.reference import run_typed_reference
from embertide.program.steps import Program
from embertide.spec.result_names import label_of
from embertide.tracing.forward.hooks import suspects
from embertide.tracing.forward.results import Returned, result_of
from embertide.tracing.forward.subject import Subject
from embertide.tracing.prove.agreement import (
    TOLERANCE,
    error_of,
    largest_of,
    layer_graphs,
)
from embertide.tracing.prove.difference import Lower, difference
from embertide.tracing.prove.kept_state import check_kept
from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.record.trials import Trial, nudged, trials

LIMIT_FLOAT32 = 0.05
"""Largest error of the module in float32: rounding, also to bfloat16, gives less."""
_LEAST = 1e-3
"""Share of a type's largest value that its values on other graphs are compared as if they had."""


_ROUNDINGS = 64
"""Times that a result may differ by what a rounding of all features changes in the module's own."""
_MOST_MAGNIFIED = 1e-4
"""A larger error is never taken for a rounding that a module magnifies."""
_MAGNIFIED = "forward magnifies roundings of its features, as a norm of equal values does"


@dataclass(frozen=True)
class Compared:
    """The comparison on one graph.

    Attributes:
        name: what is special about it.
        weighted: whether it had edge weights, for each comparison.
        error: the largest, as a share of the largest value; None where ``forward`` fails on it,
            or magnifies roundings so that nothing is compared.
        problem: why it fails.
    """

    name: str
    nodes: int
    edges: int
    weighted: tuple[bool, ...]
    error: float | None
    problem: str = ""

    @property
    def reason(self) -> str:
        """Why nothing was compared."""
        return f"forward fails: {self.problem}" if self.problem else _MAGNIFIED

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        outcome: dict[str, Any] = {"error": self.error}
        if self.error is None:
            failed = {"forward_fails": self.problem}
            outcome = failed if self.problem else {"not_compared": _MAGNIFIED}
        return {
            "graph": self.name,
            "nodes": self.nodes,
            "edges": self.edges,
            "edge_weights": list(self.weighted),
            **outcome,
        }


@dataclass(frozen=True)
class Proof:
    """What was compared.

    Attributes:
        errors: label of a result -> the largest error on any graph, as a share of the largest value
            that the module gives for it.
        graphs: what it was compared on.
        float32_error: how far the module in float32 is from itself in float64; None for one that
            was trained in float64.
        left_out: arguments of ``forward`` that were not passed, so that their defaults hold.
        untrained: norms whose running statistics are those that they began with.
    """

    errors: dict[str, float]
    graphs: tuple[Compared, ...]
    float32_error: float | None
    left_out: tuple[str, ...]
    untrained: tuple[str, ...] = ()
    tolerance: float = TOLERANCE

    @property
    def largest_error(self) -> float:
        """The largest error of any result."""
        return max(self.errors.values())

    @property
    def weighted(self) -> tuple[bool, ...]:
        """Whether graphs had edge weights, for each comparison."""
        return self.graphs[0].weighted

    @property
    def warnings(self) -> list[str]:
        """What may not be as the module was trained, a sentence each."""
        return [f"{untrained_norms(self.untrained)}; {_WHOLE}"] if self.untrained else []

    @property
    def not_compared(self) -> tuple[Compared, ...]:
        """Graphs on which ``forward`` itself fails."""
        return tuple(compared for compared in self.graphs if compared.error is None)

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the tolerance; errors by result where results have labels."""
        by_type = {} if "" in self.errors else {"errors": self.errors}
        untrained = {UNTRAINED: list(self.untrained)} if self.untrained else {}
        return {
            "largest_error": self.largest_error,
            **by_type,
            "tolerance": self.tolerance,
            "float32_error": self.float32_error,
            "arguments_left_out": list(self.left_out),
            **untrained,
            "graphs": [compared.to_json() for compared in self.graphs],
        }


def prove(subject: Subject, program: Program, types: GraphTypes, lower: Lower) -> Proof:
    """Compare on all graphs, with edge weights and, where the module needs none, also without.

    Args:
        types: of the graphs.
        lower: records the module on a graph and lowers it again, to find where a difference is.

    Raises:
        ModelError: they differ, or the module's result depends on more than its arguments; names
            the first step that differs, or what else is read.
    """
    plain, *others = trials(types)
    kept = subject.fresh()
    check_kept(kept.module, lambda: kept.forward(plain.graph, weighted=True))
    comparison = _Comparison(subject.fresh(), program, lower)
    graphs = tuple(comparison.run(trial) for trial in (plain, *others))
    untrained = tuple(_untrained(subject.module))
    return Proof(comparison.errors, graphs, comparison.float32(plain), subject.left_out, untrained)


_WHOLE = "export with the whole state_dict of the trained module, its buffers too"


def _untrained(module: nn.Module) -> Iterator[str]:
    """Paths and classes of norms that have counted no batch and have mean 0 and variance 1."""
    for path, part in module.named_modules():
        own = dict(part.named_buffers(recurse=False))
        mean, variance, count = (own.get(name) for name in _STATISTICS)
        if mean is None or variance is None or count is None:
            continue
        if not mean.any() and bool((variance == 1).all()) and not count.any():
            yield f"{path} ({type(part).__name__})".lstrip()


_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class _Comparison:
    """A module and its program, called on one graph after the other.

    Attributes:
        errors: label of a result -> the largest error so far.
        largest: key of a result -> the largest value on the plain graph.
    """

    def __init__(self, subject: Subject, program: Program, lower: Lower) -> None:
        self.subject, self.program, self.lower = subject, program, lower
        self.weighted = (True, False) if subject.weights_are_optional else (True,)
        self.errors = {label_of(key): 0.0 for key in program.results}
        self.largest = dict[str, float]()

    def run(self, trial: Trial) -> Compared:
        """Compare on a graph."""
        nodes, edges = sum(trial.graph.counts.values()), trial.graph.edge_count
        compared = Compared(trial.name, nodes, edges, self.weighted, None)
        errors = []
        for weighted in self.weighted:
            try:
                out = self.subject.forward(trial.graph, weighted)
            except ModelError as failure:
                # Without a cause it is no error of the module's own.
                if trial.usual or failure.__cause__ is None:
                    raise
                return replace(compared, problem=str(failure))
            if (error := self._compare(trial, weighted, out)) is None:
                return compared
            errors.append(error)
        return replace(compared, error=max(errors))

    def _compare(self, trial: Trial, weighted: bool, out: Sequence[Returned]) -> float | None:
        """The largest error; None where it is no more than what the module makes of a rounding."""
        graph, program = trial.graph, self.program
        computed = run_typed_reference(
            program, layer_graphs(program, graph, weighted), graph.x, graph.counts
        )
        largest = 0.0
        for key, rows in computed.items():
            value, label = result_of(out, key), label_of(key)
            usual = self.largest.setdefault(key, largest_of(value))
            error = error_of(rows, value, _LEAST * usual, finite=trial.usual)
            if not error <= TOLERANCE:
                if not trial.usual and error <= self._magnified(trial, weighted, key, value):
                    return None
                text = difference(error, label, program, trial, weighted, self.lower)
                raise ModelError(f"{text}{suspects(self.subject.module)}")
            self.errors[label] = max(self.errors[label], error)
            largest = max(largest, error)
        return largest

    def _magnified(self, trial: Trial, weighted: bool, key: str, value: Any) -> float:
        """What agreement is on a graph where the module magnifies a rounding of its features."""
        moved = result_of(self.subject.forward(nudged(trial.graph), weighted), key)
        moved = moved.double().reshape(len(moved), -1)
        change = error_of(moved, value, _LEAST * self.largest[key], finite=False)
        return min(_ROUNDINGS * change, _MOST_MAGNIFIED)

    def float32(self, trial: Trial) -> float | None:
        """How far the module is from itself in the numbers that it was trained in.

        Raises:
            ModelError: too far for rounding.
        """
        if self.subject.doubled:
            return None
        double = self.subject.forward(trial.graph, weighted=True)
        single = self.subject.single().forward(trial.graph.single(), weighted=True)
        rows = {key: result_of(single, key) for key in self.program.results}
        error = max(
            error_of(result.double().reshape(len(result), -1), result_of(double, key))
            for key, result in rows.items()
        )
        if not error <= LIMIT_FLOAT32:
            raise ModelError(
                f"{type(self.subject.module).__name__}.forward gives something else in float32 than"
                f" in float64: the largest error is {error:.3g}. It decides by the type of numbers"
                " (x.dtype, get_default_dtype), or loses its numbers in float32; do the same for"
                " both. Nothing was written."
            )
        return error
