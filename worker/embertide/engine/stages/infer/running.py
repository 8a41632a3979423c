"""One operation of a plan, and the results once all are done."""

from __future__ import annotations

import torch

from embertide.engine.stages.infer.spilled import SpilledLayers
from embertide.program.selfcheck.checker import Checker
from embertide.program.steps.execution import Execution
from embertide.program.steps.run import Input, Run


def run_op(
    execution: Execution,
    op: Run,
    at: int,
    checker: Checker | None,
    spilled: SpilledLayers | None = None,
) -> None:
    """Run operation ``at`` of a plan. Collective: every rank must call.

    Args:
        spilled: where its tensors are, if they are on disk.
    """
    tensors = execution.tensors
    tensors.begin(op.inputs, op.frees)
    if checker:
        checker.begins(execution, at)
    if spilled is None:
        tensors.keep(op.out, op.lower(execution))
    else:
        spilled.run(at)
    if checker:
        checker.ended(execution, at)


def results_in_rows(execution: Execution) -> dict[str, torch.Tensor]:
    """Key of a result -> [N/(P*M), D'] float32. Collective: every rank must call."""
    program, tensors = execution.program, execution.tensors
    names = program.results.values()
    tensors.begin([Input(name, "rows") for name in names], names)
    last = execution.channel(program.layers - 1)
    return {key: tensors.get(name, "rows", last).data for key, name in program.results.items()}
