"""A model layer by layer: what ``embertide show`` tells of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from embertide.program.steps import Program, Step
from embertide.spec.result_names import label_of


@dataclass(frozen=True)
class StepSummary:
    """One step.

    Attributes:
        out: the tensor it makes, of ``columns`` columns.
        kind: its name in a program's text.
        reads: the tensors it reads.
        parameters: name -> shape.
        node_type: whose rows it makes; "" where there is one type.
        relation: over whose edges it goes; "" of none, or where there is one.
    """

    out: str
    kind: str
    reads: list[str]
    columns: int
    parameters: dict[str, list[int]]
    node_type: str
    relation: str


@dataclass(frozen=True)
class LayerSummary:
    """One layer.

    Attributes:
        columns: of its result; of several node types, of the widest.
        results: node type -> the columns of what the layer makes for it, if it is used later.
        parameters: counts values.
    """

    name: str
    columns: int
    results: dict[str, int]
    parameters: int
    reads_edges: bool
    steps: list[StepSummary]


@dataclass(frozen=True)
class ModelSummary:
    """All layers; a parameter that several read counts once in ``parameters``.

    Attributes:
        columns_in, columns: of the features and the embeddings; of several node types, of the
            widest.
        inputs: node type -> columns.
        results: label of a result -> columns.
    """

    library: str
    columns_in: int
    columns: int
    inputs: dict[str, int]
    results: dict[str, int]
    parameters: int
    layers: list[LayerSummary]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def summarise(program: Program, library: str, names: Sequence[str]) -> ModelSummary:
    """Each layer up to the tensor that is its result; what follows the last belongs to it."""
    layers, left = [], list(program.steps)
    for number, (name, out) in enumerate(zip(names, program.outputs, strict=True)):
        last = number == len(names) - 1
        count = len(left) if last else 1 + _place(left, out)
        own, left = left[:count], left[count:]
        later = {one for step in left for one in step.reads()} | set(program.results.values())
        layers.append(_layer(program, name, out, own, later))
    inputs = _columns(program, program.inputs)
    results = {label_of(key): program.widths[name] for key, name in program.results.items()}
    return ModelSummary(
        library=library,
        columns_in=max(inputs.values()),
        columns=max(results.values()),
        inputs=inputs,
        results=results,
        parameters=_values(program, program.steps),
        layers=layers,
    )


def _columns(program: Program, tensors: Mapping[str, str]) -> dict[str, int]:
    """The columns of the tensor of each node type."""
    return {node_type: program.widths[name] for node_type, name in tensors.items()}


def _place(steps: Sequence[Step], out: str) -> int:
    """The step that makes a layer's result; -1 where an earlier layer made it."""
    return next((at for at, step in enumerate(steps) if step.out == out), -1)


def _layer(
    program: Program, name: str, out: str, steps: Sequence[Step], later: set[str]
) -> LayerSummary:
    """``later`` are the tensors that are read after the layer, or are results."""
    last = {program.types[step.out]: step.out for step in steps if step.out in later}
    last[program.types[out]] = out
    results = _columns(program, last)
    return LayerSummary(
        name=name,
        columns=max(results.values()),
        results=results,
        parameters=_values(program, steps),
        reads_edges=any(step.edges is not None for step in steps),
        steps=[
            StepSummary(
                out=step.out,
                kind=step.kind_name,
                reads=step.reads(),
                columns=program.widths[step.out],
                parameters={one: list(program.params[one].shape) for one in step.param_names()},
                node_type=program.types[step.out],
                relation=step.edges.relation if step.edges is not None else "",
            )
            for step in steps
        ],
    )


def _values(program: Program, steps: Sequence[Step]) -> int:
    names = {name for step in steps for name in step.param_names()}
    return sum(program.params[name].numel() for name in names)
