"""The slow and obvious executor: one process, float64, whole tensors, plain scatter loops.

Everything fast is tested against this, and this against DGL's and PyG's own modules. What a step
means is in the step's own file, ``reference``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from embertide.steps.base import Step
from embertide.steps.program import Program
from embertide.steps.reference import LayerGraph, ReferenceRun

__all__ = ["LayerGraph", "reference_steps", "run_reference"]


def run_reference(program: Program, graphs: Sequence[LayerGraph], x: Tensor) -> Tensor:
    """The embeddings [N, output_width] in float64 of features ``x`` [N, input_width].

    ``graphs`` holds one layer graph for each convolution layer.
    """
    found = x.double()
    for step, value in reference_steps(program, graphs, x):
        if step.out == program.output:
            found = value
    return found


def reference_steps(
    program: Program, graphs: Sequence[LayerGraph], x: Tensor
) -> Iterator[tuple[Step, Tensor]]:
    """Every step with its result, in order, as :func:`run_reference` makes them."""
    assert len(graphs) == program.layers
    run = ReferenceRun(
        params={name: tensor.double() for name, tensor in program.params.items()},
        tensors={program.input: x.double()},
        graphs=graphs,
        nodes=len(x),
    )
    for step in program.steps:
        run.tensors[step.out] = step.reference(run)
        yield step, run.tensors[step.out]
