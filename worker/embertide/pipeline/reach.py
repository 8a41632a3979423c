"""How far changes reach: the rows of each tensor that differ, before a layer is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from embertide.footprint import FLOAT_BYTES
from embertide.kernels.csr import Csr, targets_of
from embertide.planning.duration import Work, likely_seconds
from embertide.plans.boundaries import boundaries, results_of
from embertide.plans.dirty import (
    Changes,
    Targets,
    changed_inputs,
    dirty_in,
    dirty_rows,
    ends_of,
)
from embertide.plans.plan import Plan
from embertide.plans.wanted import Rows
from embertide.primitives.exchange import Exchange
from embertide.stages.changes import PRIMITIVE
from embertide.steps.base import EdgeStep

_KEPT_READ_BYTES = 1e9
"""Bytes of kept rows that all workers of a machine read and put in order in a second."""
_NOTHING = Work(
    edges=0.0, values=0.0, flops=0.0, read_bytes=0.0, written_bytes=0.0, exchanged_bytes=0.0
)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What has to be computed again.

    Attributes:
        dirty: tensor -> [N] bool, the rows that differ, or may: those that changes may reach.
        rows: of the results; ``all_rows`` of how many.
        edges: in-edges of the rows of all sums; ``all_edges`` of how many.
        seconds: that the layers are likely to take, ``full_seconds`` if all rows are computed. With
            a tolerance the least that they take: how far changes reach is not known before.
    """

    dirty: Mapping[str, Rows]
    rows: int
    all_rows: int
    edges: int
    all_edges: int
    seconds: float
    full_seconds: float


def count_reach(
    exchange: Exchange,
    plan: Plan,
    changes: Changes,
    sub_ranges: Mapping[str, Csr],
    cores: int = 1,
    tolerance: float = 0.0,
) -> Reach:
    """Follow changes through the layers. Collective: every rank must call.

    Args:
        sub_ranges: relation, by the program's name -> the in-edges of our rows.
        cores: of the machine.
        tolerance: of moves of rows that do not count.
    """
    channel = exchange.channel("world", PRIMITIVE)

    def targets(relation: str, sources: Rows) -> Rows:
        ours = targets_of(sub_ranges[relation], sources).to(torch.uint8)
        return torch.cat(channel.all_gather(ours)).bool()

    dirty = dirty_rows(plan, changes, targets)
    least = dirty if tolerance == 0 else _without_moves(plan, changes, targets)
    edges, all_edges, least_edges = _edges(exchange, plan, sub_ranges, dirty, least)
    results = set(plan.program.results.values())
    every = {name: torch.ones_like(rows) for name, rows in dirty.items()}
    return Reach(
        dirty=dirty,
        rows=sum(int(dirty[name].sum()) for name in results),
        all_rows=sum(len(dirty[name]) for name in results),
        edges=sum(edges.values()),
        all_edges=sum(all_edges.values()),
        seconds=_seconds(plan, least, least_edges, cores) + _read_seconds(plan, dirty),
        full_seconds=_seconds(plan, every, all_edges, cores),
    )


def _without_moves(plan: Plan, changes: Changes, targets: Targets) -> dict[str, Rows]:
    """The rows that differ if none that is kept between layers moves, but for those of new nodes.

    Collective: every rank must call.
    """
    dirty, known, first = dict[str, Rows](), changed_inputs(plan, changes), 0
    for end in (*boundaries(plan), results_of(plan)):
        dirty |= dirty_in(plan, plan.ops[first : end.at], known, changes, targets)
        known |= {name: changes.new[plan.program.types[name]] for name in end.tensors}
        first = end.at
    return dirty


def _edges(
    exchange: Exchange,
    plan: Plan,
    sub_ranges: Mapping[str, Csr],
    dirty: Mapping[str, Rows],
    least: Mapping[str, Rows],
) -> list[dict[str, int]]:
    """Result of a step over edges -> in-edges of its dirty rows, of all, and of the least rows.

    Collective: every rank must call.
    """
    ours: list[dict[str, int]] = [{}, {}, {}]
    for step in plan.program.steps:
        if isinstance(step, EdgeStep):
            csr = sub_ranges[step.relation]
            own, lengths = slice(csr.first, csr.first + csr.rows), csr.indptr.diff()
            ours[0][step.out] = int(lengths[dirty[step.out][own]].sum())
            ours[1][step.out] = csr.nnz
            ours[2][step.out] = int(lengths[least[step.out][own]].sum())
    every = exchange.all_objects(ours)
    return [{out: sum(of[at][out] for of in every) for out in ours[0]} for at in range(len(ours))]


def _seconds(plan: Plan, rows: Mapping[str, Rows], edges: Mapping[str, int], cores: int) -> float:
    """What some rows of all tensors take, given the in-edges that their sums go over."""
    widths, types = plan.program.widths, plan.program.types
    values = flops = 0.0
    reached: dict[tuple[int, str], int] = {}
    for step in plan.program.steps:
        if isinstance(step, EdgeStep):
            values += edges[step.out] * step.values_per_edge(widths)
            # Each of these edges may have a source that no other has.
            source = ends_of(step.relation)[0]
            key = (step.layer, source)
            reached[key] = reached.get(key, 0) + edges[step.out]
    for step in plan.program.steps:
        rows_made, nodes = rows[step.out], len(rows[step.out])
        sources = reached.get((step.layer, types[step.out]), 0)
        flops += min(nodes, int(rows_made.sum()) + sources) * step.flops_per_node(widths)
    return likely_seconds(replace(_NOTHING, values=values, flops=flops), cores)


def _read_seconds(plan: Plan, rows: Mapping[str, Rows]) -> float:
    """What reading the kept rows of all ends of layers takes."""
    names = [name for end in (*boundaries(plan), results_of(plan)) for name in end.tensors]
    values = sum(len(rows[name]) * plan.program.widths[name] for name in names)
    return values * FLOAT_BYTES / _KEPT_READ_BYTES
