"""Bounds of how far rows may be from what their layer makes of the rows before.

Where a layer is sums of neighbours, products and functions whose values are no farther apart than
what they read, a row moves by at most the sum of how far its neighbours have moved, times norms of
the weights. What has added up so since a row was computed is kept beside it. As long as that is
within the tolerance the row need not be computed: it would not move. So rows with very many
neighbours, which some change reaches every night, are seldom gone over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from embertide.engine.stages.infer.excerpt_run import PRIMITIVE, ExcerptRun
from embertide.graph.exchange import Exchange
from embertide.program.steps.aggregate import Aggregate
from embertide.program.steps.base import Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.run import Run

_ROUNDING = 1.0 + 1e-6
"""By which norms may be larger than they were computed."""
Distances = dict[str, torch.Tensor]


def have_bounds(ops: Sequence[Run]) -> bool:
    """Whether it is known of all steps of some operations how far their rows move at most."""
    steps = [step for op in ops for step in op.steps]
    return all(
        step.commutes if isinstance(step, Aggregate) else step.gains(lambda _: 1.0) is not None
        for step in steps
    )


def bounds(
    excerpts: ExcerptRun, whole: Execution, ops: Sequence[Run], moved: Mapping[str, torch.Tensor]
) -> Distances:
    """Tensor -> [N] float64, how far each row moves at most. Collective: every rank must call.

    Args:
        excerpts: where the graphs of the operations are open.
        moved: tensor that was there before -> [N] float64, how far its rows have moved.
    """
    norms, walk = dict[str, float](), dict[str, torch.Tensor]()
    channel = whole.exchange.channel("graph", PRIMITIVE)

    def norm(name: str) -> float:
        if name not in norms:
            param = whole.param(name).double()
            norms[name] = float(
                torch.linalg.matrix_norm(param, 2) if param.dim() == 2 else param.abs().max()
            )
        return norms[name] * _ROUNDING

    def of(name: str) -> torch.Tensor:
        """How far our partition's rows have moved, at most."""
        if name in walk:
            return walk[name]
        first, last = whole.ranges_of(name).partition(whole.grid.p)
        return moved[name][first:last]

    def everywhere(name: str) -> torch.Tensor:
        """[N] how far all rows have moved, at most. Collective: every rank must call."""
        return torch.cat(channel.all_gather(walk[name])) if name in walk else moved[name]

    def over(step: Step) -> torch.Tensor:
        if isinstance(step, Aggregate):
            csr = excerpts.edges_of(step.layer, step.relation)
            return step.distances(whole, csr, everywhere(step.x))
        gains = step.gains(norm)
        assert gains is not None
        return torch.stack([of(name) * gain for name, gain in gains]).sum(0)

    for op in ops:
        for step in op.steps:
            walk[step.out] = over(step)
        if op.scales and op.reader is not None:
            factors = op.reader.source_factors(whole)
            if factors is not None:
                walk[op.out] = walk[op.out] * factors.double().abs()
    return {name: everywhere(name) for name in dict.fromkeys(op.out for op in ops)}


def of_all(exchange: Exchange, count: int, ids: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """[count] float64 with the values of all ranks; 0 elsewhere. Collective: every rank must call.

    Args:
        ids: [k] int64; ranks that have the same ones have the same values.
        values: [k] float64.
    """
    every = torch.zeros(count, dtype=torch.float64)
    if exchange.grid.world == 1:
        every[ids] = values
        return every
    channel = exchange.channel("world", PRIMITIVE)
    every[torch.cat(channel.all_gather(ids))] = torch.cat(channel.all_gather(values))
    return every
