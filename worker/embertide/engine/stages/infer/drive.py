"""Every way to run: some rows are wanted, some are there, and the plan's parts run for the rest.

=============  =============  ===============================  ============================
run            wanted         there                            policy
=============  =============  ===============================  ============================
full           all            features                         checkpoints
resumed        all            a sealed layer                   checkpoints
refreshed      all            the base's but stale rows        audit, or tolerance; checkpoints
some nodes     asked          features, or a sealed layer
over kept      asked and new  the base's but these rows
on disk        any            any                              where tensors are
=============  =============  ===============================  ============================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from embertide.engine.stages.infer.asked import (
    Chosen,
    OverKept,
    ReadFeatures,
    asked_after,
    asked_over_kept,
    check_over_kept,
    own_rows,
)
from embertide.engine.stages.infer.base import Doubt, Refreshing
from embertide.engine.stages.infer.excerpts import Excerpts, Made, Need
from embertide.engine.stages.infer.keeping import Keeping, LayerKeeper
from embertide.engine.stages.infer.loop import Engine, Placement
from embertide.engine.stages.infer.stale import Audit, Stale
from embertide.engine.stages.infer.store import KeptRows
from embertide.engine.stages.infer.tolerance import Tolerance
from embertide.facts.telemetry.refresh import FULL_RUN
from embertide.layouts import Shard
from embertide.program.plans.boundaries import Part, parts_of

R_co = TypeVar("R_co", covariant=True)


class Want(Protocol[R_co]):
    """Rows that are wanted, and those that are there. Methods are collective: all ranks call."""

    @property
    def excerpts(self) -> Excerpts | None:
        """Run a part for some rows; None: for all alone."""

    @property
    def parts(self) -> Sequence[Part]:
        """Those of the plan, in order, that compute anything."""

    def need(self, part: Part) -> Need | None:
        """The rows of what a part makes that are wanted and not there; None: all."""

    def put(self, part: Part, made: Made) -> None:
        """They are there."""

    def results(self) -> R_co:
        """All parts have run."""


class All:
    """All rows, of which none is there.

    Args:
        first: the operation to begin with.
    """

    def __init__(self, engine: Engine, first: int = 0) -> None:
        self.parts, self.excerpts = parts_of(engine.plan, first), None
        self._results: Mapping[str, torch.Tensor] = {}

    def need(self, _part: Part) -> None:
        """All."""

    def put(self, _part: Part, made: Made) -> None:
        """The tensors of all rows are where they were made."""
        self._results = made.results

    def results(self) -> dict[str, torch.Tensor]:
        """Key of a result -> [N/(P*M), D'] float32, our rows."""
        return dict(self._results)


def drive(
    engine: Engine,
    want: Want[R_co],
    keeper: LayerKeeper | None = None,
    placement: Placement | None = None,
) -> R_co:
    """Run the parts of a plan for what is wanted. Collective: every rank must call.

    Args:
        keeper: what is kept where layers end; None: nothing is.
        placement: where the tensors of all rows are, with those of earlier parts.
    """
    placement = placement or engine.placement()
    for part in want.parts:
        if keeper is not None:
            keeper.before(part.first)
        need = want.need(part)
        if need is None or want.excerpts is None:
            # The graph itself: no copy, no indirection.
            after = None if keeper is None else keeper.after
            results = engine.run(
                part, engine.whole, engine.checker, placement=placement, after=after
            )
            made = Made(engine.whole, results)
        else:
            made = want.excerpts.run(part, need)
        want.put(part, made)
        # What the next part reads would be in memory beside it.
        del made, need
        if keeper is not None:
            keeper.after()
    return want.results()


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a run wants, what is there, and what it keeps.

    Attributes:
        chosen: the rows that are wanted, of a run that keeps none; None: all.
        base: has kept rows, where they need not be computed.
        keeping: where layers are kept; None: none is, nor is one read.
    """

    chosen: Chosen | None = None
    base: Refreshing | None = None
    keeping: Keeping | None = None


EVERYTHING = Request()


def infer(engine: Engine, request: Request = EVERYTHING) -> dict[str, torch.Tensor]:
    """Compute the embeddings of our sub-ranges. Collective: every rank must call.

    Returns:
        key of a result -> [N/(P*M), D'] float32 in the ``rows`` layout; only the chosen ones of
        these rows, in their order, where some are chosen.
    """
    base, keeping = request.base, request.keeping
    with torch.inference_mode():
        if request.chosen is not None:
            return _asked(engine, request.chosen, keeping)
        if keeping is None:
            return drive(engine, All(engine))
        basis = "" if base is None else base.next_basis
        placement = engine.placement()
        with closing(LayerKeeper(engine, placement, keeping, basis)) as keeper:
            results = _kept(engine, keeper, placement, base)
            names, widths = engine.plan.program.results, engine.plan.program.widths
            keeper.keep_results(
                {names[of]: Shard("rows", rows, widths[names[of]]) for of, rows in results.items()}
            )
            return results


def _kept(
    engine: Engine, keeper: LayerKeeper, placement: Placement, base: Refreshing | None
) -> dict[str, torch.Tensor]:
    """All rows: after a layer that an earlier attempt has kept, else over the base's."""
    first = keeper.resume()
    if base is None:
        return drive(engine, All(engine, first), keeper, placement)
    facts, kept = engine.ctx.graph_facts.refresh, engine.ctx.graph_facts.kept
    if first:
        facts.resumed()
        return drive(engine, All(engine, first), keeper, placement)
    excerpts = Excerpts(engine)
    try:
        audit = Tolerance(engine, excerpts, base) if base.tolerance > 0 else Audit()
        return drive(engine, Stale(engine, base, excerpts, audit, keeper, placement), keeper)
    except Doubt as doubt:
        facts.whole(str(doubt))
        if engine.ctx.grid.rank == 0:
            kept.warn(FULL_RUN.format(why=doubt))
    if engine.checker:
        engine.checker.parts.clear()
    keeper.start_again()
    placement.start_again()
    return drive(engine, All(engine), keeper, placement)


def _asked(engine: Engine, chosen: Chosen, keeping: Keeping | None) -> dict[str, torch.Tensor]:
    """The chosen rows of the results; after a layer that an earlier attempt has kept, if any."""
    ctx = engine.ctx
    facts = ctx.graph_facts.chosen
    facts.rows = sum(int(rows.sum()) for rows in chosen.values())
    facts.all_rows = sum(len(rows) for rows in chosen.values())
    placement = engine.placement()
    if ctx.device.type != "cpu":
        return _those_of_all(engine, chosen, placement, 0, "rows are computed alone on a CPU only")
    if keeping is not None:
        with closing(LayerKeeper(engine, placement, keeping)) as keeper:
            for end, seal in keeper.sealed():
                asked = asked_after(engine, chosen, end.at)
                why = asked.why_all()
                if (rows := keeper.restore(seal, None if why else asked.excerpt)) is not None:
                    keeper.goes_on(end, seal)
                    if why:
                        del asked
                        placement.go_on(end.at, rows)
                        return _those_of_all(engine, chosen, placement, end.at, why)
                    asked.excerpts.store.take(rows)
                    return drive(engine, asked)
    asked = asked_after(engine, chosen)
    if why := asked.why_all():
        del asked
        return _those_of_all(engine, chosen, placement, 0, why)
    return drive(engine, asked)


def _those_of_all(
    engine: Engine, chosen: Chosen, placement: Placement, first: int, why: str
) -> dict[str, torch.Tensor]:
    """The chosen rows of the results of all rows, from an operation on with which a part begins."""
    facts, whole = engine.ctx.graph_facts.chosen, engine.whole
    facts.why, facts.edges, facts.all_edges = why, 0, 0
    every = drive(engine, All(engine, first), placement=placement)
    types, names = whole.program.types, whole.program.results
    own = {of: own_rows(whole, rows, of) for of, rows in chosen.items()}
    return {key: rows[own[types[names[key]]].to(rows.device)] for key, rows in every.items()}


def infer_over_kept(
    engine: Engine, features: ReadFeatures, kept: KeptRows, chosen: Chosen
) -> OverKept:
    """Compute the rows of some nodes on one worker, over the rows that a version has kept.

    Args:
        engine: its graphs have the in-edges of the chosen nodes and of all new ones; its features
            say how they were loaded, and have no rows.
        features: is called once for each node type, with the nodes whose features are needed.
        chosen: a type may be left out.

    Raises:
        InputError: the model needs more of neighbours than the rows that are kept.
        Damaged: what was kept is not what was written, or not of this model.
    """
    sampled = engine.ctx.job.spec.inference.fanout != "full"
    check_over_kept(engine.plan, sampled=sampled)
    with torch.inference_mode():
        asked, read = asked_over_kept(engine, features, kept, chosen)
        rows = drive(engine, asked)
    computed = {of: torch.zeros(len(own), dtype=torch.bool) for of, own in kept.before.items()}
    for need in asked.needs.values():
        for name, made in need.results.items():
            computed[engine.plan.program.types[name]] |= made
    return OverKept(rows=rows, computed=computed, features=read, edges=asked.edges)
