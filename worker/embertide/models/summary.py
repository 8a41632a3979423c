"""A model layer by layer: what ``embertide show`` tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from embertide.steps import Program, Step


@dataclass(frozen=True)
class StepSummary:
    """One step.

    Attributes:
        out: the tensor it makes, of ``columns`` columns.
        kind: its name in a program's text.
        reads: the tensors it reads.
        parameters: name -> shape.
    """

    out: str
    kind: str
    reads: list[str]
    columns: int
    parameters: dict[str, list[int]]


@dataclass(frozen=True)
class LayerSummary:
    """One layer; ``parameters`` counts values."""

    name: str
    columns: int
    parameters: int
    reads_edges: bool
    steps: list[StepSummary]


@dataclass(frozen=True)
class ModelSummary:
    """All layers; a parameter that several read counts once in ``parameters``."""

    library: str
    columns_in: int
    columns: int
    parameters: int
    layers: list[LayerSummary]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def summarise(program: Program, library: str, names: Sequence[str]) -> ModelSummary:
    """Each layer up to the tensor that is its result; what is behind the last belongs to it."""
    layers, left = [], list(program.steps)
    for number, (name, out) in enumerate(zip(names, program.outputs, strict=True)):
        last = number == len(names) - 1
        count = len(left) if last else 1 + _place(left, out)
        layers.append(_layer(program, name, out, left[:count]))
        del left[:count]
    return ModelSummary(
        library=library,
        columns_in=max(program.widths[name] for name in program.inputs.values()),
        columns=max(program.widths[name] for name in program.results.values()),
        parameters=_values(program, program.steps),
        layers=layers,
    )


def _place(steps: Sequence[Step], out: str) -> int:
    """The step that makes a layer's result; -1 where an earlier layer made it."""
    return next((at for at, step in enumerate(steps) if step.out == out), -1)


def _layer(program: Program, name: str, out: str, steps: Sequence[Step]) -> LayerSummary:
    return LayerSummary(
        name=name,
        columns=program.widths[out],
        parameters=_values(program, steps),
        reads_edges=any(step.edges is not None for step in steps),
        steps=[
            StepSummary(
                out=step.out,
                kind=step.kind_name,
                reads=step.reads(),
                columns=program.widths[step.out],
                parameters={one: list(program.params[one].shape) for one in step.param_names()},
            )
            for step in steps
        ],
    )


def _values(program: Program, steps: Sequence[Step]) -> int:
    names = {name for step in steps for name in step.param_names()}
    return sum(program.params[name].numel() for name in names)
