"""How far changes reach: the rows of each tensor that differ, before a layer is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from embertide.engine.planning.duration import KEPT_BYTES, Work, likely_seconds
from embertide.engine.stages.changes import PRIMITIVE
from embertide.footprint import FLOAT_BYTES
from embertide.graph.exchange import Exchange
from embertide.io.versions.layers.seals import PAGE_BYTES
from embertide.io.versions.layers.writing import MOST_SHARE
from embertide.kernels.csr import Csr
from embertide.kernels.some_rows import count_edges, targets_of
from embertide.program.plans.boundaries import parts_of
from embertide.program.plans.flow import stale_in, stale_inputs
from embertide.program.plans.plan import Plan
from embertide.program.steps.base import EdgeStep
from embertide.program.steps.frontier import Changes, Rows
from embertide.spec.relations import ends_of

_KEPT_READ_BYTES = 4e8
"""Bytes of kept rows that all workers of a machine read, check and put in order in a second."""
_NOTHING = Work(
    edges=0.0, values=0.0, flops=0.0, read_bytes=0.0, written_bytes=0.0, exchanged_bytes=0.0
)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What has to be computed again.

    Attributes:
        stale: tensor -> [N] bool, the rows that differ, or may: those that changes may reach.
        rows: of the results; ``all_rows`` of how many.
        edges: in-edges of the rows of all sums; ``all_edges`` of how many.
        seconds: that the layers are likely to take, with reading what was kept and writing what is
            kept; ``full_seconds`` if all rows are computed. With a tolerance the least that they
            take: how far changes reach is not known before.
        stopped: changes were followed no further, since these rows alone take as long as all.
    """

    stale: Mapping[str, Rows]
    rows: int
    all_rows: int
    edges: int
    all_edges: int
    seconds: float
    full_seconds: float
    stopped: bool = False


@dataclass(frozen=True, kw_only=True)
class Following:
    """How changes are followed.

    Attributes:
        cores: of the machine.
        tolerance: of moves of rows that do not count.
        keeps: the run keeps its rows for the next one.
        stops: once the rows that were reached are likely to take as long as all.
    """

    cores: int = 1
    tolerance: float = 0.0
    keeps: bool = False
    stops: bool = False


def count_reach(
    exchange: Exchange,
    plan: Plan,
    changes: Changes,
    sub_ranges: Mapping[str, Csr],
    following: Following = Following(),
) -> Reach:
    """Follow changes through the layers. Collective: every rank must call.

    Args:
        sub_ranges: relation, by the program's name -> the in-edges of our rows.
    """
    return _Follow(exchange, plan, changes, sub_ranges, following).reach()


class _Follow:
    def __init__(
        self,
        exchange: Exchange,
        plan: Plan,
        changes: Changes,
        sub_ranges: Mapping[str, Csr],
        following: Following,
    ) -> None:
        self._exchange, self._plan, self._changes = exchange, plan, changes
        self._sub_ranges, self._following = sub_ranges, following
        program = plan.program
        every = {step.out: torch.ones_like(self._new(step.out)) for step in program.steps}
        edges = self._edges(every)
        self._all_edges = sum(edges.values())
        self._full = self._seconds(every, edges) + self._written(every)
        self._all_rows = sum(len(every[name]) for name in set(program.results.values()))

    def reach(self) -> Reach:
        """See :func:`count_reach`."""
        known = stale_inputs(self._plan, self._changes)
        stale, edges, seconds = dict(known), dict[str, int](), 0.0
        first, *_ = parts = parts_of(self._plan)
        after_first = known
        for part in parts:
            rows = stale_in(self._plan, part.ops, known, self._changes, self._targets)
            stale |= {name: of for name, of in rows.items() if name not in known}
            edges = self._edges(stale)
            seconds = self._cost(stale, edges)
            if self._following.stops and seconds >= self._full:
                return self._reach(stale, edges, seconds, stopped=True)
            if part is first:
                after_first = rows
            if self._following.tolerance > 0:
                # The least that differ: no row that is kept moves, but for those of new nodes.
                rows = rows | {name: self._new(name) for name in part.end.tensors}
            known = rows
        if self._following.tolerance > 0:
            ops = self._plan.ops[first.end.at :]
            stale = stale_in(self._plan, ops, after_first, self._changes, self._targets)
            edges = self._edges(stale)
        return self._reach(stale, edges, seconds)

    def _reach(
        self,
        stale: dict[str, Rows],
        edges: dict[str, int],
        seconds: float,
        *,
        stopped: bool = False,
    ) -> Reach:
        results = set(self._plan.program.results.values()) & set(stale)
        return Reach(
            stale=stale,
            rows=sum(int(stale[name].count_nonzero()) for name in results),
            all_rows=self._all_rows,
            edges=sum(edges.values()),
            all_edges=self._all_edges,
            seconds=seconds,
            full_seconds=self._full,
            stopped=stopped,
        )

    def _new(self, name: str) -> Rows:
        return self._changes.new[self._plan.program.types[name]]

    def _targets(self, relation: str, sources: Rows) -> Rows:
        """Collective: every rank must call."""
        ours = targets_of(self._sub_ranges[relation], sources).to(torch.uint8)
        channel = self._exchange.channel("world", PRIMITIVE)
        return torch.cat(channel.all_gather(ours)).bool()

    def _edges(self, rows: Mapping[str, Rows]) -> dict[str, int]:
        """Result of a step over edges -> in-edges of its rows, of all ranks, as far as it has some.

        Collective: every rank must call.
        """
        ours = dict[str, int]()
        for step in self._plan.program.steps:
            if isinstance(step, EdgeStep) and step.out in rows:
                csr = self._sub_ranges[step.relation]
                own = rows[step.out][csr.first : csr.first + csr.rows]
                ours[step.out] = count_edges(csr.indptr, own)
        every = self._exchange.all_objects(ours)
        return {out: sum(of[out] for of in every) for out in ours}

    def _cost(self, rows: Mapping[str, Rows], edges: Mapping[str, int]) -> float:
        """What some rows take over those that were kept, in seconds."""
        return self._read(rows, edges) + self._seconds(rows, edges) + self._written(rows)

    def _seconds(self, rows: Mapping[str, Rows], edges: Mapping[str, int]) -> float:
        """What computing some rows takes, given the in-edges that their sums go over."""
        widths, types = self._plan.program.widths, self._plan.program.types
        values = flops = 0.0
        reached: dict[tuple[int, str], int] = {}
        steps = [step for step in self._plan.program.steps if step.out in rows]
        for step in steps:
            if isinstance(step, EdgeStep):
                values += edges[step.out] * step.values_per_edge(widths)
                # Each of these edges may have a source that no other has.
                key = (step.layer, ends_of(step.relation)[0])
                reached[key] = reached.get(key, 0) + edges[step.out]
        for step in steps:
            rows_made, nodes = rows[step.out], len(rows[step.out])
            sources = reached.get((step.layer, types[step.out]), 0)
            some = int(rows_made.count_nonzero())
            flops += min(nodes, some + sources) * step.flops_per_node(widths)
        work = replace(_NOTHING, values=values, flops=flops)
        return likely_seconds(work, self._following.cores)

    def _kept_tensors(self) -> list[str]:
        return [name for part in parts_of(self._plan) for name in part.end.tensors]

    def _read(self, rows: Mapping[str, Rows], edges: Mapping[str, int]) -> float:
        """What reading kept rows takes: those of results, and of other tensors the pages of those
        that are computed or read over edges, if each is on another one."""
        program, sources, size = self._plan.program, dict[str, int](), 0
        for step in program.steps:
            if isinstance(step, EdgeStep) and step.out in edges:
                of_type = ends_of(step.relation)[0]
                sources[of_type] = sources.get(of_type, 0) + edges[step.out]
        for name in self._kept_tensors():
            every, row_bytes = len(self._new(name)), max(1, program.widths[name]) * FLOAT_BYTES
            own = int(rows[name].sum()) if name in rows else 0
            pages = (own + sources.get(program.types[name], 0)) * max(row_bytes, PAGE_BYTES)
            is_result = name in program.results.values()
            size += every * row_bytes if is_result else min(every * row_bytes, pages)
        return size / _KEPT_READ_BYTES

    def _written(self, rows: Mapping[str, Rows]) -> float:
        """What writing some rows takes, where the run keeps them; all of a tensor if it has new
        nodes, or so many rows that it is written whole."""
        values = 0.0
        for name in self._kept_tensors() if self._following.keeps else ():
            count = int(rows[name].count_nonzero()) if name in rows else 0
            whole = count > MOST_SHARE * len(self._new(name)) or bool(self._new(name).any())
            values += (len(self._new(name)) if whole else count) * self._plan.program.widths[name]
        return values * FLOAT_BYTES / KEPT_BYTES
