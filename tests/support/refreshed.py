"""What ranks do for the tests of runs that compute what has changed; light to import."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from embertide.context import RunContext
from embertide.engine.pipeline.compute import layer_graphs
from embertide.engine.pipeline.prepare import target_of
from embertide.engine.pipeline.reach import count_reach
from embertide.engine.pipeline.typed_graph import Located, TypedGraph
from embertide.engine.stages.changes import (
    EarlierDigests,
    OwnNodes,
    RowDigests,
    find_changes,
    keep_digests,
)
from embertide.engine.stages.features import (
    LoadedNodes,
    RawFeatures,
    loaded_features,
    locate_features,
)
from embertide.engine.stages.infer import (
    Engine,
    Keeping,
    Refreshing,
    Request,
    arrange,
    infer,
)
from embertide.facts.telemetry.kept import KeptFacts
from embertide.facts.telemetry.refresh import RefreshFacts
from embertide.graph.exchange import Exchange
from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import KeptTensor, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.writing import Writer
from embertide.program.plans.boundaries import Boundary, boundaries, boundary_digest, results_of
from embertide.program.plans.flow import why_whole
from embertide.program.plans.plan import Plan
from embertide.program.steps import Program
from tests.support.plans import as_given
from tests.support.world import (
    NODES,
    Graph,
    NoClock,
    Rank,
    loaded_rows,
    make_checker,
    make_job,
)

RECORD = "0" * 32
"""The name of the digests."""


@dataclass(frozen=True)
class Day:
    """A graph whose nodes have ids of their own.

    Attributes:
        ids: [N] ascending; features are those of an id.
        moved: ids whose features are not those of other days.
        drifts: how many times the features of some ids have moved a little.
        huge: ids whose features are so large that products of them are not finite; such a day's
            rows are not computed a second time, so that they are kept.
    """

    graph: Graph
    ids: np.ndarray
    moved: tuple[int, ...] = ()
    drifts: int = 0
    huge: tuple[int, ...] = ()

    def features(self, width: int) -> torch.Tensor:
        """[N, width] float32."""
        every = torch.randn(256, width, generator=torch.Generator().manual_seed(6))
        every[list(self.moved)] += 1.0
        for number in range(self.drifts):
            g = torch.Generator().manual_seed(number)
            some = torch.randint(0, 97, (6,), generator=g)
            every[some] += 0.02 * torch.randn(6, width, generator=g)
        every[list(self.huge)] *= 3e38
        return every[torch.from_numpy(self.ids)]


def days_of(graph: Graph) -> list[Day]:
    """As it is; two edges fewer, two more and another weight; a node gone and another one new;
    other features of one node."""
    ids, keep = np.arange(NODES), np.ones(len(graph.src), bool)
    keep[[5, 77]] = False
    second = Day(_with_other_edges(graph, keep, [(31, 60), (88, 61)]), ids)
    third = _without(second, 40)
    return [Day(graph, ids), second, third, replace(third, moved=(70,))]


def _with_other_edges(graph: Graph, keep: np.ndarray, added: list[tuple[int, int]]) -> Graph:
    """Some of the edges, one with another weight, and others beside them."""
    src, dst = np.array(added).T
    weight, features = graph.weight, graph.features
    if weight is not None:
        weight = np.concatenate([weight[keep], np.ones(len(added), np.float32)])
        weight[9] += 0.5
    if features is not None:
        more = np.ones((len(added), features.shape[1]), np.float32)
        features = np.concatenate([features[keep], more])
    ends = np.concatenate([graph.src[keep], src]), np.concatenate([graph.dst[keep], dst])
    return Graph(*ends, weight, graph.nodes, features)


def _without(day: Day, node: int) -> Day:
    """Without a node; the last place is a new one's, which has an edge of each kind."""
    graph = day.graph
    left = _with_other_edges(graph, (graph.src != node) & (graph.dst != node), [(12, 97), (97, 13)])
    number = np.arange(graph.nodes + 1)
    number[node + 1 :] -= 1
    renumbered = replace(left, src=number[left.src], dst=number[left.dst])
    return Day(renumbered, np.concatenate([np.delete(day.ids, node), [200]]))


@dataclass
class Answer:
    """Our rows of a day, of a whole run and of one that goes on from the day before.

    Attributes:
        why: why all rows were computed.
        edges: gone over, of ``all_edges``.
        beyond: rows that the self-check found to be wrong, of ``checked``.
        facts: of the run that goes on.
        steps: for each tensor that is kept, the largest distance of a row from what its layer makes
            of the rows that were kept before, relative to its norm; of the first layers also how
            many rows have other bits than those of a whole run, with the exact ones put in.
    """

    whole: np.ndarray
    rows: np.ndarray | None = None
    why: str = ""
    edges: int = 0
    all_edges: int = 0
    checked: int = 0
    beyond: int = 0
    facts: RefreshFacts = field(default_factory=RefreshFacts)
    steps: dict[str, float] = field(default_factory=dict)


@dataclass
class Days:
    """A program day after day on one rank. Collective: every rank must call."""

    exchange: Exchange
    program: Program
    weighted: bool
    uri: str
    inference: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    max_error: float = 0.0
    basis: str = ""
    place: Callable[[RunContext], RunContext] = lambda ctx: ctx

    def run(self, days: list[Day]) -> list[Answer]:
        """Each day whole, then over the rows that the day before has kept."""
        answers, before = [], None
        for number, day in enumerate(days):
            key = hashlib.sha256(f"{self.uri} {number}".encode()).hexdigest()[:32]
            store = LayerStore(
                open_storage(None), self.uri, key, f"202611{number + 1:02}T180000Z-3fa9c1"
            )
            rank = Rank(
                self.exchange, day.graph, make_job(weighted=self.weighted, **self.inference)
            )
            rank.ctx = self.place(rank.ctx)
            first, last = rank.ranges.worker(self.exchange.grid.rank)
            # Samples are drawn by ids, as those of files are.
            rank.keys = day.ids[first:last].astype(np.uint64)
            whole = rank.embed(self.program, day.features(self.program.input_width))
            answer = Answer(whole.copy())
            self._refresh(rank, day, store, before, answer)
            if self.tolerance and not day.huge and "rows" not in self.inference:
                features = day.features(self.program.input_width)
                answer.steps = step_errors(rank, self.program, features, store, self.basis)
            answers.append(answer)
            before = store
        return answers

    def _refresh(
        self, rank: Rank, day: Day, store: LayerStore, before: LayerStore | None, answer: Answer
    ) -> None:
        ctx, program = rank.ctx, self.program
        facts = ctx.graph_facts.refresh = RefreshFacts()
        ctx.graph_facts.kept = KeptFacts()
        mine = loaded_rows(ctx.grid.rank, ctx.grid.world, len(day.ids))
        features = day.features(program.input_width)
        (node,), raw = ctx.job.spec.input.nodes, RawFeatures([], features[mine], placed=False)
        nodes = LoadedNodes(node, rank.ids, raw, mine)
        locations = locate_features(ctx, nodes, rank.ranges)
        located = Located(rank.ranges, locations, rank.names, rank.keys)
        graph = TypedGraph({node.name: located}, {rank.relation: rank.sub_range})
        layers = arrange(ctx, as_given(program, target_of(ctx)), {"": rank.ranges})
        loaded = {"": loaded_features(ctx, nodes)}
        if (scratch := ctx.scratch) is not None:
            for own in loaded.values():
                own.data = scratch.empty(*own.data.shape).data.copy_(own.data)
        fanout = ctx.job.spec.inference.fanout
        if why := why_whole(layers.plan, sampled=fanout != "full"):
            answer.why = why
            return
        first, last = rank.ranges.worker(ctx.grid.rank)
        names = {"": OwnNodes(rank.ranges, day.ids[first:last])}
        sub_ranges = dict.fromkeys(program.relations, rank.sub_range)
        counted = frozenset(
            step.own_edges.relation
            for step in program.steps
            if step.own_edges and any(end == "out" for end, _ in step.degrees_read)
        )
        digests = RowDigests(
            exchange=self.exchange, nodes=names, loaded=loaded, sub_ranges=sub_ranges,
            counted=counted, scratch=ctx.scratch,
        )  # fmt: skip
        refreshing = compared = None
        if before is not None:
            seal = before.sealed(RECORD)
            assert seal is not None
            compared = find_changes(self.exchange, digests, EarlierDigests(Kept(before, seal)))
        kept = None if compared is None else compared.kept
        assert not keep_digests(self.exchange, store, RECORD, digests, {}, kept)
        if before is not None and compared is not None:
            changes = compared.changes
            reach = count_reach(self.exchange, layers.plan, changes, sub_ranges)
            answer.all_edges = reach.all_edges
            refreshing = Refreshing(
                store=before,
                basis=self.basis,
                next_basis=store.key if self.tolerance else "",
                before=compared.before,
                changes=changes,
                reached=reach.stale,
                all_edges=reach.all_edges,
                tolerance=self.tolerance,
                max_error=self.max_error,
                seed=5,
            )
            facts.basis = refreshing.next_basis
            facts.reached_edges = reach.edges
        checker = None if day.huge else make_checker(ctx, layers, 1000)
        graphs = layer_graphs(ctx, layers, graph, NoClock(), checker)
        keeping = Keeping(store, range(99), results=True)
        at = {"": locations}
        engine = Engine.of(ctx, layers, graphs, loaded, at, NoClock(), checker)
        rows = infer(engine, Request(base=refreshing, keeping=keeping))
        self.basis, answer.facts = facts.basis, facts
        answer.rows, answer.why, answer.edges = rows[""].numpy().copy(), facts.why, facts.edges
        if checker is None:
            return
        check = checker.finish()
        answer.checked = check.rows
        answer.beyond = sum(found.beyond for found in check.checked)


Cases = dict[str, tuple[Program, bool, list[Day]]]


def step_errors(
    rank: Rank, program: Program, features: torch.Tensor, store: LayerStore, basis: str
) -> dict[str, float]:
    """See :class:`Answer`: each layer once more, over all rows of those that were kept before.

    Collective: every rank must call.
    """
    plan, errors, before = as_given(program, target_of(rank.ctx)), dict[str, float](), None
    for end in (*boundaries(plan), results_of(plan)):
        key = hashlib.sha256(f"{store.key} {end.layer}".encode()).hexdigest()[:32]
        again = LayerStore(store.storage, store.output_uri, key, store.version)
        if before is not None:
            if rank.ctx.grid.rank == 0:
                _copy(_sealed(store, plan, before, basis), store, again, plan, before)
            rank.ctx.exchange.barrier()
        rank.embed(program, features, Keeping(again, range(99), results=True))
        rank.ctx.exchange.barrier()
        kept, exact = _sealed(store, plan, end, basis), _sealed(again, plan, end)
        for tensor, other in zip(kept.tensors, exact.tensors, strict=True):
            rows, expected = _rows(Kept(store, kept), tensor), _rows(Kept(again, exact), other)
            distance = np.linalg.norm(rows - expected, axis=1)
            norm = np.maximum(np.linalg.norm(rows, axis=1), 1e-300)
            errors[f"{end.layer} {tensor.name}"] = float((distance / norm).max())
            if before is None and end != results_of(plan):
                differ = _exact_rows(Kept(store, kept), tensor) != _exact_rows(
                    Kept(again, exact), other
                )
                errors[f"{end.layer} {tensor.name} exact"] = float(differ.any(1).sum())
        before = end
    return errors


def _sealed(store: LayerStore, plan: Plan, end: Boundary, basis: str = "") -> Seal:
    seal = store.sealed(boundary_digest(plan, end, "float32", basis))
    assert seal is not None
    return seal


def _rows(kept: Kept, tensor: KeptTensor) -> np.ndarray:
    rows = np.empty((tensor.rows, tensor.width), np.float32)
    kept.get(tensor.name, (0, tensor.rows), rows)
    return rows.astype(np.float64)


def _exact_rows(kept: Kept, tensor: KeptTensor) -> np.ndarray:
    """The rows that were kept, with the exact ones of each slice of columns put in."""
    rows, every = _rows(kept, tensor).astype(np.float32), (0, tensor.rows)
    for left, right in {(block.left, block.right) for block in tensor.exact}:
        ids, values = kept.beside(tensor.name, "exact", every, (left, right), np.float32)
        rows[ids, left:right] = values
    return rows


def _copy(seal: Seal, store: LayerStore, again: LayerStore, plan: Plan, end: Boundary) -> None:
    """Seal the rows of a layer in another store, as those of a full run."""
    kept, name = Kept(store, seal), boundary_digest(plan, end, "float32")
    fields = {"layer": seal.layer, "layers": seal.layers, "feature": seal.feature, "how": seal.how}
    with Writer(again, 0, lambda own: [own]) as writer:
        record = writer.begin(name, **fields)
        for tensor in seal.tensors:
            bare = replace(tensor, blocks=(), patches=(), exact=(), bounds=())
            record.put(bare, _rows(kept, tensor).astype(np.float32))
        assert not record.keep()


def refresh_cases(
    exchange: Exchange,
    cases: Cases,
    uri: str,
    inference: dict[str, Any] | None = None,
    place: Callable[[RunContext], RunContext] = lambda ctx: ctx,
    **tolerance: float,
) -> dict[str, list[Answer]]:
    """Case -> answers, day by day. Collective: every rank must call.

    Args:
        inference: fields of the job's ``inference``.
        place: where tensors of nodes are.
        tolerance: and the largest error, of :class:`Days`.
    """
    return {
        name: Days(
            exchange,
            program,
            weighted,
            f"{uri}/{number}",
            inference or {},
            place=place,
            **tolerance,
        ).run(days)
        for number, (name, (program, weighted, days)) in enumerate(cases.items())
    }
