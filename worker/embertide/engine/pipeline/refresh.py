"""Whether a run computes only what has changed since the current version, and what it keeps for the
next one.

The layers of the current version are kept below the output, with digests of what each row was made
of. Whatever is in doubt makes it a full run, which says why.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from embertide.context import RunContext
from embertide.engine.pipeline.prepare import Prepared
from embertide.engine.planning.base_version import Base, planned_how, read_base, record_of
from embertide.engine.planning.layer_key import layer_key
from embertide.engine.planning.order import WorkOrder
from embertide.facts.telemetry.refresh import FULL_RUN
from embertide.graph.objects import broadcast_object
from embertide.kernels.describe import instruction_set, is_compiled
from embertide.program.plans.flow import why_whole

_log = logging.getLogger("embertide")


@dataclass(frozen=True)
class RefreshPlan:
    """What a run takes over and keeps; the same on every rank.

    Attributes:
        base: that it may go on from.
        keeps: it keeps the rows of its own version.
        key: of its own layers.
        how: how its rows are computed: those of runs that differ here may have other bits.
    """

    base: Base
    keeps: bool
    key: str
    how: dict[str, Any]

    @property
    def goes_on(self) -> bool:
        """Whether rows of the base may be taken over."""
        return bool(self.base.version) and not self.base.why

    @property
    def record(self) -> str:
        """A digest of how rows are computed: the name of the digests of such rows."""
        return record_of(self.how)


def plan_refresh(prepared: Prepared, order: WorkOrder) -> RefreshPlan:
    """Look at the current version. Collective: every rank must call."""
    ctx, spec = prepared.ctx, prepared.ctx.job.spec.refresh
    key, how, unfit = layer_key(ctx.job, order.inputs), _how(prepared), _unfit(prepared)
    base = Base()
    if ctx.grid.rank == 0:
        base = read_base(ctx.storage, ctx.job, order.inputs, how)
    if ctx.grid.world > 1:
        base = Base(**broadcast_object(asdict(base), ctx.grid.rank))
    if unfit:
        base = replace(base, why=unfit if spec.keep or base.version else "")
    if base.why:
        ctx.graph_facts.refresh.whole(base.why)
        if ctx.grid.rank == 0:
            _log.info(FULL_RUN.format(why=base.why))
    if order.no_room and ctx.grid.rank == 0:
        ctx.graph_facts.kept.warn(order.no_room)
    return RefreshPlan(base, spec.keep and not unfit and not order.no_room, key, how)


def on_one_machine(ctx: RunContext) -> bool:
    """Whether all workers are known to be on one machine."""
    return ctx.grid.world == 1 or ctx.exchange.channel("world", "features").in_place


def _how(prepared: Prepared) -> dict[str, Any]:
    ctx = prepared.ctx
    return {
        **planned_how(ctx.job, ctx.grid.shape),
        "torch": torch.__version__,
        "kernels": instruction_set(),
        "in order": sorted(name for name, own in prepared.loaded.items() if own.placed),
    }


def _unfit(prepared: Prepared) -> str:
    """Why no rows can be taken over, whatever has changed; "": they can."""
    ctx = prepared.ctx
    if ctx.device.type != "cpu":
        return "rows are computed alone on a CPU only"
    if ctx.scratch is not None:
        return "tensors of nodes are on disk, since they exceed the memory of a worker"
    if not is_compiled():
        return "the native kernels are not there, without which rows may be rounded otherwise"
    if not on_one_machine(ctx):
        return "the workers do not share one host's memory"
    if ctx.grid.feature > 1 and ctx.job.spec.inference.rows != "float32":
        return "inference.rows is not float32, on a grid with feature slices"
    sampled = ctx.job.spec.inference.fanout != "full"
    return why_whole(prepared.plan, sampled=sampled)
