"""The slow and obvious executor: one process, float64, whole tensors, plain scatter loops.

Everything fast is tested against this, and this against DGL's and PyG's own modules. What a step
means is in the step's own file, ``reference``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from embertide.program.steps.base import Step
from embertide.program.steps.program import Program
from embertide.program.steps.reference import LayerGraph, ReferenceRun

__all__ = ["LayerGraph", "reference_steps", "run_reference", "run_typed_reference"]


def run_reference(program: Program, graphs: Sequence[LayerGraph], x: Tensor) -> Tensor:
    """The embeddings [N, output_width] in float64 of features ``x`` [N, input_width].

    ``graphs`` holds one layer graph for each convolution layer.
    """
    typed = [{"": graph} for graph in graphs]
    return run_typed_reference(program, typed, {"": x}, {"": len(x)})[""]


def run_typed_reference(
    program: Program,
    graphs: Sequence[Mapping[str, LayerGraph]],
    features: Mapping[str, Tensor],
    nodes: Mapping[str, int],
) -> dict[str, Tensor]:
    """Key of a result -> [N, D'] in float64.

    Args:
        graphs: of each convolution layer, relation -> its edges.
        features: node type -> [N, D], of those that have some.
        nodes: node type -> N.
    """
    run = _start(program, graphs, features, nodes)
    for _ in _steps(program, run):
        pass
    return {key: run.tensors[name] for key, name in program.results.items()}


def reference_steps(
    program: Program,
    graphs: Sequence[Mapping[str, LayerGraph]],
    features: Mapping[str, Tensor],
    nodes: Mapping[str, int],
) -> Iterator[tuple[Step, Tensor]]:
    """Every step with its result, in order, as :func:`run_typed_reference` makes them."""
    yield from _steps(program, _start(program, graphs, features, nodes))


def _start(
    program: Program,
    graphs: Sequence[Mapping[str, LayerGraph]],
    features: Mapping[str, Tensor],
    nodes: Mapping[str, int],
) -> ReferenceRun:
    """Before the first step."""
    assert len(graphs) == program.layers
    return ReferenceRun(
        params={name: tensor.double() for name, tensor in program.params.items()},
        tensors={name: features[of_type].double() for of_type, name in program.inputs.items()},
        graphs=graphs,
        nodes=nodes,
    )


def _steps(program: Program, run: ReferenceRun) -> Iterator[tuple[Step, Tensor]]:
    for step in program.steps:
        run.tensors[step.out] = step.reference(run)
        yield step, run.tensors[step.out]
