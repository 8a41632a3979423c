"""A module's decoder, which gives pairs of nodes a score, as lines over the rows of both.

It is recorded as a module, on a random graph whose edges are the pairs and whose
features are the rows of the results, and proved like any other.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embertide.errors import ModelError
from embertide.models.builder import ProgramBuilder
from embertide.models.weights import Weights
from embertide.program.steps import Program
from embertide.program.steps.decoder import Decoder
from embertide.spec.result_names import node_type_of
from embertide.tracing.forward.prepare import prepare
from embertide.tracing.forward.results import Returned
from embertide.tracing.forward.subject import Subject
from embertide.tracing.lower.lowering import Lowering, bound_names, needed
from embertide.tracing.lower.message_lines import Ends
from embertide.tracing.lower.row_wise import emit
from embertide.tracing.lower.values import NodeRows
from embertide.tracing.prove.agreement import TOLERANCE, error_of
from embertide.tracing.prove.kept_state import check_kept
from embertide.tracing.record.graphs import GraphTypes, RandomGraph, random_graph
from embertide.tracing.record.self_loops import View
from embertide.tracing.record.trials import trials

PAIRS = "source:pairs:destination"
_NODES, _SEED = 31, 2
_HOW = (
    "a decoder takes (z, edge_index), (z_source, z_destination, edge_index), DGL's (graph, h), or"
    " the rows of both nodes, (z_i, z_j), and gives a row for each pair"
)


class _Called(nn.Module):
    """A decoder, with the module whose parameters it reads."""

    def __init__(self, call: Callable[..., Any], owner: nn.Module) -> None:
        super().__init__()
        self.owner, self.call = owner, call


class _OneTable(_Called):
    """A decoder that takes the rows of all nodes, and pairs of their numbers."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.call(x, edge_index)


class _Graph(_Called):
    """A decoder that takes DGL's graph of the pairs."""

    def forward(self, graph: Any, x: Any) -> Any:
        return self.call(graph, x)


class _TwoTables(_Called):
    """A decoder that takes the rows of two node types."""

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        (edges,) = edge_index_dict.values()
        return self.call(x_dict["source"], x_dict["destination"], edges)


class _Rows(_Called):
    """A decoder that takes the rows of both nodes of each pair."""

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        (edges,) = edge_index_dict.values()
        return self.call(x_dict["source"][edges[0]], x_dict["destination"][edges[1]])


def decoder_of(module: nn.Module, decoder: str | nn.Module) -> nn.Module:
    """What is called with the results: a method or part of a module, or another module.

    Raises:
        ModelError: there is none of the name, or its arguments are others.
    """
    if isinstance(decoder, nn.Module):
        return _wrapped(decoder)
    target: Any = module
    for name in decoder.split("."):
        target = getattr(target, name, None)
    if isinstance(target, nn.Module):
        return _wrapped(target)
    if not callable(target):
        raise ModelError(
            f"{type(module).__name__} has no method or module {decoder}, which --decoder names"
        )
    return _wrapped(module, target)


def _wrapped(owner: nn.Module, method: Callable[..., Any] | None = None) -> nn.Module:
    """A module, or a method of it, by the arguments that it takes."""
    call = owner.__call__ if method is None else method
    names = [
        name
        for name, parameter in inspect.signature(method or owner.forward).parameters.items()
        if parameter.default is inspect.Parameter.empty and parameter.kind not in _STARS
    ]
    own = getattr(owner, "decoder", None)
    if not names and isinstance(own, nn.Module):
        return _wrapped(own)  # PyG's GAE.decode passes its arguments on.
    if len(names) == 3:
        return _TwoTables(call, owner)
    if len(names) != 2:
        raise ModelError(f"the decoder takes {', '.join(names) or 'no arguments'}; {_HOW}")
    if names[0] in ("g", "graph"):
        return _Graph(call, owner)
    return (
        _OneTable(call, owner) if "edge" in names[1] or "index" in names[1] else _Rows(call, owner)
    )


_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def export_decoder(module: nn.Module, decoder: str | nn.Module, program: Program) -> Decoder:
    """Record and prove a decoder of a program's results.

    Args:
        module: the module whose program it is, in eval mode.
        decoder: a method or a part of it by its path, or a module.

    Raises:
        ModelError: it does what no lines can express, or the proof fails; names its line of code.
    """
    module, decoder = copy.deepcopy((module, decoder))
    called = decoder_of(module, decoder).eval().double()
    types = _types(called, program)
    subject = prepare(called, {}, types if types.typed else None, {})
    lowered = _lower(subject.fresh(), random_graph(types, _NODES, _SEED))
    _prove(subject, lowered, types)
    return lowered


def _types(called: nn.Module, program: Program) -> GraphTypes:
    """A graph whose nodes have the results as features.

    Raises:
        ModelError: results have different numbers of columns.
    """
    widths = {program.widths[name] for name in program.results.values()}
    if len(widths) > 1:
        listed = ", ".join(sorted({node_type_of(key) or key for key in program.results}))
        raise ModelError(
            f"results ({listed}) have {', '.join(map(str, sorted(widths)))} columns; a decoder"
            " reads results of one width: name the result that it reads by --results"
        )
    (width,) = widths
    if isinstance(called, _TwoTables | _Rows):
        return GraphTypes({"source": width, "destination": width}, (PAIRS,))
    return GraphTypes({"": width})


def _lower(subject: Subject, graph: RandomGraph) -> Decoder:
    """Record it on a graph and write it as lines."""
    output = subject.record_edges(graph)
    tensors = {name: tensor.detach() for name, tensor in subject.module.state_dict().items()}
    low = Lowering(
        module=subject.module,
        types=graph.types,
        emit=emit,
        b=ProgramBuilder(dict(graph.types.nodes)),
        weights=Weights(tensors, "the decoder", dtype=torch.float64),
        names=bound_names(subject.module),
    )
    for node in needed(output):
        if not node.edges:
            if node.op != "input":
                raise ModelError(
                    f"{node.where}: the decoder computes something for all nodes ({node.op}); let"
                    " forward do that, and the decoder what is of each pair"
                )
            low.values[node] = NodeRows(low.b.inputs[node.args[1]])
    ends = Ends(low, (output,), View(graph.types.relations[0]))
    ends.lines.finish(ends.lines.of(output), int(output.value[0].numel()))
    params = {f"p{at}": tensor.detach().clone() for at, tensor in enumerate(ends.params)}
    widths = list(graph.types.nodes.values())
    return Decoder(tuple(ends.lines.text), widths[0], widths[-1], params)


def _prove(subject: Subject, decoder: Decoder, types: GraphTypes) -> None:
    """Compare with the module on all graphs that have pairs.

    Raises:
        ModelError: they differ.
    """
    plain, *others = trials(types)
    kept = subject.fresh()
    check_kept(kept.module, lambda: kept.forward(plain.graph, weighted=True))
    for trial in (plain, *others):
        if not trial.graph.edge_count:
            continue
        (edges,) = trial.graph.edges.values()
        tables = list(trial.graph.x.values())
        scores = decoder.score(tables[0][edges.src], tables[-1][edges.dst])
        own = _tensor(subject.fresh().forward(trial.graph, weighted=True))
        error = error_of(scores, own, finite=trial.usual)
        if not error <= TOLERANCE:
            raise ModelError(
                f"the decoder does not give on {trial.name} what was recorded of it: the largest"
                f" error is {error:.3g}, and up to {TOLERANCE:g} is agreement; {_HOW}"
            )


def _tensor(out: Sequence[Returned]) -> Tensor | None:
    """The only result, if it is a tensor."""
    value = out[0].value if len(out) == 1 else None
    return value if isinstance(value, Tensor) else None
