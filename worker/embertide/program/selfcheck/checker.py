"""Checks the layers while they are computed: rows of each phase a second time, in float64."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from embertide.facts.telemetry.self_check import CHECKED, OUT_DEGREES, SelfCheck
from embertide.graph.exchange import Exchange
from embertide.graph.views import EdgeView
from embertide.grid import RowRanges
from embertide.kernels.spilled_csr import AnyCsr
from embertide.layouts import Shard
from embertide.program.plans.plan import Plan
from embertide.program.selfcheck.draw import CAPTURED_VALUES, Nodes, draw, own_rows, rows_to_check
from embertide.program.selfcheck.judge import (
    TOLERANCE,
    Limits,
    NameOf,
    Tally,
    allowed_differences,
    difference,
    joined,
    magnitudes,
    worst_of,
)
from embertide.program.selfcheck.recompute import (
    PRIMITIVE,
    Captured,
    Change,
    DegreeKey,
    Fetch,
    Recomputation,
    Unit,
    unchanged,
    units_of,
)
from embertide.program.selfcheck.row_edges import OutEdges, RowEdges, special_rows
from embertide.program.steps.base import EdgeStep, Step
from embertide.program.steps.execution import Execution
from embertide.program.steps.op import Op
from embertide.program.steps.reference import End
from embertide.spec.relations import ends_of


@dataclass(frozen=True)
class Complete:
    """The rows that a plan is run for, where it is for some.

    Attributes:
        edges: layer and relation -> [N] bool, the rows that have their edges; others have none.
        made: tensor -> [N] bool, the rows of it that are read, and made of rows that are; of those
            that are left out none is.
    """

    edges: Mapping[tuple[int, str], Tensor]
    made: Mapping[str, Tensor]

    def rows(self, unit: Unit, nodes: int) -> Nodes:
        """Ascending rows that a unit makes of all their edges."""
        none = torch.zeros(nodes, dtype=torch.bool)
        rows = ~none
        for some in (*(self.edges.get(key, none) for key in unit.graphs),
                     *(self.made.get(op.out, none) for op in unit.ops)):  # fmt: skip
            rows &= some
        return rows.nonzero().squeeze(1).numpy()


@dataclass
class Checker:
    """Follows the operations of a plan. Methods are collective: every rank must call.

    Attributes:
        exchange, plan, ranges: of the layers.
        wanted: rows of each node type and phase; None: by the number of nodes.
        seed: decides which rows they are.
        limits: how far rows may be from those computed again.
        name_of: names nodes in messages.
        complete: the rows that are made of their edges, where others are not: rows are drawn among
            them.
        seconds: that it has taken on this rank.
        parts: what checks some nodes alone; what they find counts.
    """

    exchange: Exchange
    plan: Plan
    ranges: Mapping[str, RowRanges]
    wanted: int | None
    seed: int
    limits: Limits
    name_of: NameOf
    complete: Complete | None = None
    seconds: float = 0.0
    parts: list[Checker] = field(default_factory=list)
    _phases: list[list[Unit]] = field(init=False)
    _edges: dict[tuple[Unit, int, str], RowEdges] = field(default_factory=dict)
    _out: dict[tuple[int | None, str], OutEdges] = field(default_factory=dict)
    _counted: set[tuple[EdgeView, bool]] = field(default_factory=set)
    _in_progress: list[Recomputation] = field(default_factory=list)
    _seen: dict[str, Captured] = field(default_factory=dict)
    _tallies: list[Tally] = field(default_factory=list)
    _skipped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._phases = units_of(self.plan)

    # -- beside the layers -------------------------------------------------------------------

    def take_edges(self, layer: int | None, relation: str, csr: AnyCsr) -> None:
        """Keep the in-edges of the rows to check. Not collective.

        Args:
            layer: whose graph it is; None: that of all layers.
            csr: of our sub-range.
        """
        with self._timed():
            for unit in (unit for units in self._phases for unit in units):
                for of_layer, name in unit.graphs:
                    if name == relation and layer in (None, of_layer):
                        self._edges[unit, of_layer, name] = self._edges_of(unit, csr)
            if self.complete is None and any(
                self._counts_out(step, layer, relation) for step in self.plan.program.steps
            ):
                origin, destination = _type_at(relation, "out"), _type_at(relation, "in")
                nodes = self.ranges[origin].nodes
                drawn = draw(rows_to_check(self.wanted, nodes), nodes, self.seed, 0)
                within = origin == destination
                self._out[layer, relation] = OutEdges.of(csr, np.sort(drawn), nodes, within=within)

    def _counts_out(self, step: Step, layer: int | None, relation: str) -> bool:
        """Whether a step reads out-degrees of a layer graph."""
        view = step.own_edges
        if view is None or view.relation != relation or layer not in (None, view.layer):
            return False
        return any(end == "out" for end, _ in step.degrees_read)

    def begins(self, execution: Execution, at: int) -> None:
        """Operation ``at`` begins: of a phase's first one, bring together what the phase reads."""
        phases = self.plan.phases
        if at > 0 and phases[at] == phases[at - 1]:
            return
        with self._timed():
            for unit in self._phases[phases[at]]:
                if unit.skipped:
                    self._skipped.append(_why_skipped(unit.skipped))
                if unit.ops:
                    self._in_progress.append(self._begun(execution, unit))

    def ended(self, execution: Execution, at: int) -> None:
        """Operation ``at`` is over: of a phase's last one, compare what the phase has made."""
        phases, out = self.plan.phases, self.plan.ops[at].out
        with self._timed():
            for own in self._in_progress:
                if own.unit.skipped and own.unit.skipped.out == out:
                    rows = Fetch.of(execution, own.unit.node_type, own.rows)
                    own.captured[out] = rows.tensor(out)
            if at + 1 == len(phases) or phases[at + 1] != phases[at]:
                for own in self._in_progress:
                    self._compare(execution, own)
                self._in_progress.clear()

    def hop(
        self,
        execution: Execution,
        step: EdgeStep,
        number: int,
        shard: Shard,
        *,
        scaled: bool,
        columns: Sequence[slice] | None = None,
    ) -> None:
        """One of the sums of a step that sums several times is there: compare all but the last."""
        if number == step.passes:
            return
        with self._timed():
            (own,) = (one for one in self._in_progress if one.unit.over_edges is step)
            self._find_degrees(execution, own, [(step, own.sources)])
            fetch = Fetch.of(execution, own.unit.node_type, own.sources)
            after = own.with_columns(number, fetch.shard(shard, scaled=scaled), columns)
            if after is None:
                return
            rows = Captured(own.rows, after.at(own.rows).float(), scaled)
            factors = own.factors(step, own.rows) if scaled else None
            self._judge(own, f"{step.out}, sum {number}", rows, factors, own.compute_hop)
            own.passed(step, number, after)

    def results(self, execution: Execution, results: Mapping[str, Tensor]) -> None:
        """The embeddings are there: see that they are the rows that were compared.

        Args:
            results: key of a result -> [N/(P*M), D'] in ``rows``.
        """
        with self._timed():
            program = self.plan.program
            for key, name in program.results.items():
                shard, node_type = (
                    Shard("rows", results[key], program.widths[name]),
                    program.types[name],
                )
                if name in self._seen:
                    fetch = Fetch.of(execution, node_type, self._seen[name].nodes)
                    self._unchanged(name, node_type, fetch.shard(shard), self.plan.program.layers)

    @property
    def beyond(self) -> int:
        """Rows of ours that differ by more than they may, of what was compared so far."""
        ours = sum(tally.beyond + tally.overflowed for tally in self._tallies)
        return ours + sum(part.beyond for part in self.parts)

    def finish(self) -> SelfCheck:
        """What all ranks have found; the same on every rank."""
        return join_checks([self._finish(), *(part.finish() for part in self.parts)])

    def _finish(self) -> SelfCheck:
        mine = [self.seconds, [one.to_json() for one in self._tallies]]
        gathered = self.exchange.all_objects(mine)
        of_ranks = [[Tally.from_json(item) for item in items] for _, items in gathered]
        tallies = [joined(of_all) for of_all in zip(*of_ranks, strict=True)]
        tallies = [
            one for one in tallies if one.in_edges or one.rows or one.beyond or one.overflowed
        ]
        return SelfCheck(
            state=CHECKED,
            seconds=max(seconds for seconds, _ in gathered),
            tolerance=self.limits.tolerance,
            checked=[one.result(self.ranges) for one in tallies],
            skipped=self._skipped,
            faults=worst_of(fault for one in tallies for fault in one.faults),
            overflows=worst_of(fault for one in tallies for fault in one.overflows),
        )

    # -- one unit ----------------------------------------------------------------------------

    def _drawn(self, unit: Unit) -> Nodes:
        """Our rows of those that are drawn for a unit, in the order in which they are kept."""
        ranges = self.ranges[unit.node_type]
        some = None if self.complete is None else self.complete.rows(unit, ranges.nodes)
        if some is not None:
            drawn = draw(rows_to_check(self.wanted, len(some)), len(some), self.seed, unit.phase)
            return ours_of(some[drawn], ranges, self.exchange.grid.rank)
        count = rows_to_check(self.wanted, ranges.nodes)
        drawn = draw(count, ranges.nodes, self.seed, unit.phase)
        return own_rows(drawn, ranges, self.exchange.grid.rank)

    def _edges_of(self, unit: Unit, csr: AnyCsr) -> RowEdges:
        more = special_rows(csr, self.seed + unit.phase)
        nodes = self.ranges[unit.node_type].nodes
        some = None if self.complete is None else self.complete.rows(unit, nodes)
        more = more if some is None else more[np.isin(more, some)]
        rows = np.concatenate([more, self._drawn(unit)])
        _, first = np.unique(rows, return_index=True)
        columns = sum(self.plan.program.widths[name] for name in unit.at_sources)
        return RowEdges.of(csr, rows[np.sort(first)], CAPTURED_VALUES // max(1, columns))

    def _begun(self, execution: Execution, unit: Unit) -> Recomputation:
        own = Recomputation(unit, self.plan.program, np.sort(self._drawn(unit)), {})
        self._add_edges(own)
        if unit.at_sources:
            of_type = self.plan.program.types[unit.at_sources[0]]
            sources = Fetch.of(execution, of_type, own.sources)
            own.captured |= {name: sources.tensor(name) for name in unit.at_sources}
        skipped = unit.skipped.out if unit.skipped else None
        rows = Fetch.of(execution, unit.node_type, own.rows)
        own.captured |= {name: rows.tensor(name) for name in unit.at_rows if name != skipped}
        for name in list(own.captured):
            self._still_there(execution, name, own)
        return own

    def _add_edges(self, own: Recomputation) -> None:
        """Take in-edges that are there by now; rows whose in-edges were left out are none of ours.

        Samples of a layer are made when its first step over edges begins, so degrees of its edges
        may be read by a phase that begins before.
        """
        for at in own.unit.graphs:
            edges = self._edges.pop((own.unit, *at), None)
            if edges is not None:
                # Of the first graph, special rows too.
                later = own.captured or own.edges
                rows = np.intersect1d(own.rows, edges.rows) if later else edges.rows
                own.edges = {name: one.of_rows(rows) for name, one in own.edges.items()}
                own.edges[at], own.rows = edges.of_rows(rows), rows

    def _compare(self, execution: Execution, own: Recomputation) -> None:
        """What a unit has made, of what is still there."""
        self._add_edges(own)
        reading = [step for step in own.unit.steps if step.degrees_read]
        over_edges = own.unit.over_edges
        at = [(step, own.sources if step is over_edges else own.rows) for step in reading]
        self._find_degrees(execution, own, at)
        fetch, made = Fetch.of(execution, own.unit.node_type, own.rows), dict[str, Tensor]()
        for op in own.unit.ops:
            if execution.tensors.current(op.out) is None:
                continue
            rows, factors = fetch.tensor(op.out), None
            if rows.scaled and op.reader is not None:
                reader = Recomputation(own.unit, own.program, own.rows, {})
                self._find_degrees(execution, reader, [(op.reader, own.rows)])
                factors = reader.factors(op.reader, own.rows)

            def again(at: Nodes, change: Change = unchanged, out: str = op.out) -> Tensor:
                if change is not unchanged or len(at) < len(own.rows):
                    return own.compute(at, change)[out]
                if not made:
                    made.update(own.compute(at))
                return made[out]

            self._judge(own, op.out, rows, factors, again)
            self._seen[op.out] = rows

    def _judge(
        self,
        own: Recomputation,
        name: str,
        rows: Captured,
        factors: Tensor | None,
        again: Callable[[Nodes, Change], Tensor],
    ) -> None:
        """Compare rows of a tensor with what they are when they are computed again."""

        def scaled(at: Nodes, change: Change) -> Tensor:
            values = again(at, change)
            return values if factors is None else values * factors[torch.from_numpy(at)]

        expected = rows.values.double()
        if len(own.rows):
            expected = scaled(np.arange(len(own.rows)), unchanged)
        channel = self.exchange.channel("world", PRIMITIVE)
        scale = torch.stack(channel.all_gather(magnitudes(expected))).amax(0)
        off = difference(rows.values, expected)
        tally = Tally(own.unit.layer, name, own.unit.node_type, rows=len(own.rows))
        tally.in_edges = sum(len(edges.cols) for edges in own.edges.values())
        tally.largest = float(scale.max())
        counts = sum((np.diff(edges.indptr) for edges in own.edges.values()), 0 * own.rows)
        allowed = allowed_differences(off, scale, counts, self.limits, scaled)
        tally.find(own.rows, rows.values, expected, allowed, self.name_of, scaled)
        self._tallies.append(tally)

    def _still_there(self, execution: Execution, name: str, own: Recomputation) -> None:
        """What was compared when it was made has not changed until it is read."""
        of_type = self.plan.program.types[name]
        if name in self._seen:
            fetch = Fetch.of(execution, of_type, self._seen[name].nodes)
            self._unchanged(name, of_type, fetch.tensor(name), own.unit.layer)
        elif of_type == own.unit.node_type:
            rows = own.captured[name]
            self._seen[name] = Captured(own.rows, rows.at(own.rows).float(), rows.scaled)

    def _unchanged(self, name: str, node_type: str, rows: Captured, layer: int) -> None:
        seen = self._seen[name]
        # Rows that travel in bfloat16 are rounded once more where they change their layout.
        rounding = 0.0 if self.limits.row_type == torch.float32 else 2.0**-7
        tally = Tally(layer, f"{name}, later", node_type)
        expected = seen.values.double()
        allowed = rounding * expected.abs()

        def again(at: Nodes, change: Change) -> Tensor:
            return change(expected[torch.from_numpy(at)])

        # Nothing overflows but by rounding.
        rounds = again if rounding else None
        tally.find(seen.nodes, rows.values, expected, allowed, self.name_of, rounds)
        self._tallies.append(tally)

    def _find_degrees(
        self, execution: Execution, own: Recomputation, at: Sequence[tuple[Step, Nodes]]
    ) -> None:
        """Degrees that steps read at some nodes, as the run has counted them."""
        wanted: defaultdict[DegreeKey, list[Nodes]] = defaultdict(list)
        for step, nodes in at:
            for end, weighted in sorted(step.degrees_read):
                assert step.own_edges is not None
                wanted[step.own_edges, end, weighted].append(nodes)
        for key, some in wanted.items():
            if key not in own.degrees:
                view, end, weighted = key
                nodes = np.unique(np.concatenate(some))
                fetch = Fetch.of(execution, _type_at(view.relation, end), nodes)
                own.degrees[key] = fetch.degrees(view, end, weighted=weighted)
                if end == "out":
                    self._check_out_degrees(execution, view, weighted=weighted)

    def _check_out_degrees(self, execution: Execution, view: EdgeView, *, weighted: bool) -> None:
        """The run's out-degrees of some nodes, once for each graph as steps see it."""
        if self.complete is not None:
            # Counted in the whole graph, of which some rows' edges are here.
            return
        sampled = (view.layer, view.relation) in self._out
        key = view if sampled else view._replace(layer=0), weighted
        if key in self._counted:
            return
        self._counted.add(key)
        out = self._out[view.layer if sampled else None, view.relation]
        channel, rank = self.exchange.channel("world", PRIMITIVE), self.exchange.grid.rank
        expected = out.joined(channel).degrees(view, weighted=weighted).unsqueeze(1)
        of_type = _type_at(view.relation, "out")
        first, last = np.searchsorted(out.nodes, self.ranges[of_type].worker(rank))
        fetch = Fetch.of(execution, of_type, out.nodes[first:last])
        rows = fetch.degrees(view, "out", weighted=weighted)
        tally = Tally(view.layer, OUT_DEGREES, of_type, rows=len(rows.nodes))
        tally.largest = float(expected.abs().max())
        ours = expected[first:last]
        tally.find(rows.nodes, rows.values, ours, TOLERANCE * ours.abs(), self.name_of)
        self._tallies.append(tally)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began, threads = time.perf_counter(), torch.get_num_threads()
        # For so few rows, threads would wait for each other longer than they compute.
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            self.seconds += time.perf_counter() - began


def _type_at(relation: str, end: End) -> str:
    """The node type at an end of a relation."""
    return ends_of(relation)[1 if end == "in" else 0]


def _why_skipped(op: Op) -> str:
    step = op.steps[0]
    return (
        f"{op.out} ({step.kind_name}, layer {step.layer}) needs a statistic over all nodes: its"
        " rows were not computed again, but those that are made of them were"
    )


def ours_of(drawn: Nodes, ranges: RowRanges, rank: int) -> Nodes:
    """The drawn nodes of our sub-range, in the order in which they were drawn."""
    first, last = ranges.worker(rank)
    return drawn[(drawn >= first) & (drawn < last)]


def join_checks(checks: Sequence[SelfCheck]) -> SelfCheck:
    """What the whole and its parts have found."""
    return replace(
        checks[0],
        seconds=sum(check.seconds for check in checks),
        checked=[rows for check in checks for rows in check.checked],
        skipped=list(dict.fromkeys(why for check in checks for why in check.skipped)),
        faults=worst_of(fault for check in checks for fault in check.faults),
        overflows=worst_of(fault for check in checks for fault in check.overflows),
    )


def check_some(
    checker: Checker,
    plan: Plan,
    ranges: Mapping[str, RowRanges],
    complete: Complete,
    names: Mapping[str, Tensor],
) -> Checker:
    """Checks a plan that is run for some nodes; what it finds is part of what ``checker`` does.

    Args:
        ranges: of these nodes.
        names: node type -> [n] the dense id in the whole graph of each.
    """

    def name_of(node_type: str, node: int) -> str:
        return checker.name_of(node_type, int(names[node_type][node]))

    part = replace(
        checker,
        plan=plan,
        ranges=ranges,
        complete=complete,
        name_of=name_of,
        seconds=0.0,
        parts=[],
        _edges={},
        _out={},
        _counted=set(),
        _in_progress=[],
        _seen={},
        _tallies=[],
        _skipped=[],
    )
    checker.parts.append(part)
    return part
