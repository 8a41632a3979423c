"""Whether a run computes only what has changed since the current version, and what it keeps for the
next one.

The layers of the current version are kept below the output, with digests of what each row was made
of. The rows whose digests differ have changed. Whatever is in doubt makes it a full run, which says
why.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import psutil
import torch

from embertide.context import RunContext
from embertide.engine.pipeline.kept_graph import on_one_machine
from embertide.engine.pipeline.prepare import Prepared
from embertide.engine.pipeline.reach import Following, Reach, count_reach
from embertide.engine.planning.base_version import Base, planned_how, read_base, record_of, touched
from embertide.engine.planning.inputs import layer_key
from embertide.engine.planning.order import WorkOrder
from embertide.engine.planning.row_inputs import RowInputs, edges_of, features_of, ids_of
from embertide.engine.stages.changes import (
    Compared,
    EarlierDigests,
    OwnNodes,
    RowDigests,
    count_degrees,
    find_changes,
    keep_degrees,
    keep_digests,
    tensor_name,
)
from embertide.engine.stages.changes.digests import EDGES, FEATURES, IDS, OUT
from embertide.engine.stages.infer import Refreshing
from embertide.errors import EmbertideError
from embertide.facts.telemetry.refresh import FULL_RUN, RefreshFacts
from embertide.graph.moved_edges import MovedEdges
from embertide.graph.objects import broadcast_object
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.csr import Csr
from embertide.kernels.describe import instruction_set, is_compiled
from embertide.kernels.spilled_csr import in_memory
from embertide.kernels.torch_threads import on_one_thread
from embertide.program.plans.flow import kinds_read, why_whole
from embertide.spec.manifest import Refresh

UNKEPT = "the rows of this version are not kept for the next run: {why}"
COSTS = (
    "{rows:,} of {all_rows:,} rows and {edges:,} of {all_edges:,} edges would be computed again,"
    " which with reading what was kept is likely to take {seconds:.1f} s, all of them {full:.1f} s"
)
STOPPED = (
    "{edges:,} of {all_edges:,} edges and more would be gone over again, which with reading what"
    " was kept is likely to take {seconds:.1f} s and more, all of them {full:.1f} s"
)
REACHED = (
    "changes since version {base} may reach {rows:,} of {all_rows:,} rows, over {edges:,} of"
    " {all_edges:,} edges; the others are not computed"
)

_log = logging.getLogger("embertide")


@dataclass(frozen=True)
class RefreshPlan:
    """What a run takes over and keeps; the same on every rank.

    Attributes:
        base: that it may go on from.
        keeps: it keeps the rows of the version that it publishes.
        key: of the layers that it keeps.
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
    unfit = unfit or order.no_room
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
    return RefreshPlan(base, spec.keep and not unfit, key, how)


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
    if ctx.disk is not None:
        return "edges are on disk, since they exceed the memory of a worker"
    if not is_compiled():
        return "the native kernels are not there, without which rows may be rounded otherwise"
    if not on_one_machine(ctx):
        return "the workers do not share one host's memory"
    if ctx.grid.feature > 1 and ctx.job.spec.inference.rows != "float32":
        return "inference.rows is not float32, on a grid with feature slices"
    sampled = ctx.job.spec.inference.fanout != "full"
    return why_whole(prepared.plan, sampled=sampled)


# -- what has changed -------------------------------------------------------------------------


def find_unchanged(prepared: Prepared, order: WorkOrder, plan: RefreshPlan) -> Refreshing | None:
    """Keep the digests of our rows, and find those that differ from the base's.

    None: all rows are computed. Collective: every rank must call.
    """
    if not plan.keeps and not plan.goes_on:
        return None
    sub_ranges = _sub_ranges(prepared)
    digests, made_of = _digests(prepared, sub_ranges), _made_of(prepared, order)
    compared = _compare(prepared, plan, digests, made_of) if plan.goes_on else None
    if plan.keeps:
        _keep(prepared, order, plan, digests, made_of, compared)
    if compared is None:
        return None
    return _take_over(prepared, order, plan, compared, sub_ranges)


def _sub_ranges(prepared: Prepared) -> dict[str, Csr]:
    """Relation -> the in-edges of our rows, with what the program reads of them."""
    program, graph = prepared.plan.program, prepared.graph
    every = {
        name: in_memory(graph.sub_ranges[of]) for name, of in graph.of_relations(program).items()
    }
    return {
        name: csr if program.edge_needs(name).features else csr.without_features()
        for name, csr in every.items()
    }


def _digests(prepared: Prepared, sub_ranges: dict[str, Csr]) -> RowDigests:
    """Digests of our rows, none of which is made yet."""
    located = {name: prepared.graph.located[of] for name, of in prepared.names.items()}
    counted = {
        step.own_edges.relation
        for step in prepared.plan.program.steps
        if step.own_edges is not None and any(end == "out" for end, _ in step.degrees_read)
    }
    return RowDigests(
        exchange=prepared.ctx.exchange,
        nodes={name: OwnNodes(own.ranges, own.names) for name, own in located.items()},
        loaded=prepared.loaded,
        sub_ranges=sub_ranges,
        counted=frozenset(counted),
        scratch=prepared.ctx.scratch,
        read=prepared.read,
    )


def _made_of(prepared: Prepared, order: WorkOrder) -> dict[str, RowInputs]:
    """Name of digests -> what they are made of, beside the ids of nodes."""
    job, program = prepared.ctx.job, prepared.plan.program
    ids = {
        tensor_name(IDS, name): ids_of(job, order.inputs, of) for name, of in prepared.names.items()
    }
    features = {
        tensor_name(FEATURES, name): features_of(job, order.inputs, prepared.names[name])
        for name in prepared.loaded
    }
    relations = {
        name: edges_of(job, order.inputs, str(of))
        for name, of in prepared.graph.of_relations(program).items()
    }
    edges = {tensor_name(kind, n): of for n, of in relations.items() for kind in (EDGES, OUT)}
    return ids | features | edges


def _keep(
    prepared: Prepared,
    order: WorkOrder,
    plan: RefreshPlan,
    digests: RowDigests,
    made_of: dict[str, RowInputs],
    compared: Compared | None,
) -> None:
    """Keep the digests; without them the layers are of no use. Collective: every rank must call."""
    ctx = prepared.ctx
    output, together = ctx.job.spec.published_uri, on_one_machine(ctx)
    store = LayerStore(ctx.storage, output, plan.key, order.version, together)
    earlier = None if compared is None else compared.kept
    why = keep_digests(ctx.exchange, store, plan.record, digests, made_of, earlier)
    why = why or _keep_degrees(prepared, store, plan, digests)
    if why:
        if ctx.grid.rank == 0:
            ctx.graph_facts.kept.warn(UNKEPT.format(why=why))
        return
    ctx.graph_facts.refresh.keeps = {"key": plan.key, "how": plan.how}


def _keep_degrees(
    prepared: Prepared, store: LayerStore, plan: RefreshPlan, digests: RowDigests
) -> str:
    """Keep the degrees that neighbours' rows are multiplied by; why they are not kept.

    Collective: every rank must call.
    """
    exchange, sub_ranges = prepared.ctx.exchange, digests.sub_ranges
    ranges = {name: own.ranges for name, own in digests.nodes.items()}
    kinds = kinds_read(prepared.plan.program, {of: csr.weighted for of, csr in sub_ranges.items()})
    degrees = count_degrees(exchange, ranges, sub_ranges, kinds)
    return keep_degrees(exchange, store, plan.record, degrees, ranges)


def _compare(
    prepared: Prepared, plan: RefreshPlan, digests: RowDigests, made_of: dict[str, RowInputs]
) -> Compared | None:
    """The rows that differ from the base's; None where its digests cannot be used, which is noted.

    Collective: every rank must call.
    """
    ctx, base = prepared.ctx, plan.base
    store = LayerStore(ctx.storage, ctx.job.spec.published_uri, base.key, base.version)
    try:
        earlier = _earlier(prepared, store, plan.record, made_of)
        return find_changes(ctx.exchange, digests, earlier)
    except Damaged as error:
        ctx.graph_facts.refresh.whole(str(error))
        if ctx.grid.rank == 0:
            ctx.graph_facts.kept.warn(FULL_RUN.format(why=error))
        return None


def _take_over(
    prepared: Prepared,
    order: WorkOrder,
    plan: RefreshPlan,
    compared: Compared,
    sub_ranges: dict[str, Csr],
) -> Refreshing | None:
    """What is taken over of the base; None: all rows are computed, which is noted.

    Collective: every rank must call.
    """
    ctx, base, facts = prepared.ctx, plan.base, prepared.ctx.graph_facts.refresh
    spec, changes, cores = ctx.job.spec.refresh, compared.changes, psutil.cpu_count() or 1
    store = LayerStore(ctx.storage, ctx.job.spec.published_uri, base.key, base.version)
    with on_one_thread():
        following = Following(
            cores=cores,
            tolerance=spec.tolerance,
            keeps=plan.keeps,
            stops=spec.mode == "auto",
        )
        reach = count_reach(ctx.exchange, prepared.plan, changes, sub_ranges, following)
    facts.all_rows, facts.all_edges = reach.all_rows, reach.all_edges
    if spec.mode == "auto" and reach.seconds >= reach.full_seconds:
        facts.whole(_costs(STOPPED if reach.stopped else COSTS, reach))
        if ctx.grid.rank == 0:
            _log.info("%s", facts.sentences[0])
        return None
    if ctx.grid.rank == 0:
        _log.info(_costs(REACHED, reach, base=base.version))
    _goes_on(facts, order, plan, spec, reach)
    seed = int.from_bytes(hashlib.sha256(order.version.encode()).digest()[:4], "little")
    return Refreshing(
        store=store,
        how=plan.record,
        basis=base.basis,
        next_basis=facts.basis,
        before=compared.before,
        changes=changes,
        reached=reach.stale,
        all_edges=reach.all_edges,
        tolerance=spec.tolerance,
        max_error=spec.largest_error,
        seed=seed,
    )


def _goes_on(
    facts: RefreshFacts, order: WorkOrder, plan: RefreshPlan, spec: Refresh, reach: Reach
) -> None:
    """Rows of the base are taken over."""
    facts.mode, facts.base, facts.full = "incremental", plan.base.version, plan.base.full
    facts.rows, facts.edges = reach.rows, reach.edges
    facts.reached_rows, facts.reached_edges = reach.rows, reach.edges
    if spec.tolerance:
        facts.tolerance, facts.max_error = spec.tolerance, spec.largest_error
        # No other attempt goes on from layers that are this one's alone.
        facts.basis = f"{order.version} {spec.tolerance!r}"


def _costs(text: str, reach: Reach, **more: str) -> str:
    return text.format(
        **more,
        rows=reach.rows,
        all_rows=reach.all_rows,
        edges=reach.edges,
        all_edges=reach.all_edges,
        seconds=reach.seconds,
        full=reach.full_seconds,
    )


def _earlier(
    prepared: Prepared, store: LayerStore, name: str, made_of: dict[str, RowInputs]
) -> EarlierDigests:
    """The base's digests, which rank 0 looks up. Collective: every rank must call.

    Raises:
        Damaged: they are not there, or are not what was written; on all ranks alike.
    """
    ctx = prepared.ctx
    answer: tuple[str, object, _Parts] = "", None, _Parts()
    if ctx.grid.rank == 0:
        try:
            seal = store.sealed(name)
            why = "" if seal else f"{store.uri}: its digests of rows are gone"
            parts = _parts(ctx, seal, store, made_of) if seal else _Parts()
            answer = why, seal.to_json() if seal else None, parts
        except (Damaged, EmbertideError) as error:
            answer = str(error), None, _Parts()
    if ctx.grid.world > 1:
        why, record, parts = answer
        why, record, found = broadcast_object((why, record, asdict(parts)), ctx.grid.rank)
        answer = why, record, _Parts(**found)
    why, record, parts = answer
    if why or not isinstance(record, dict):
        raise Damaged(why)
    features = {tensor_name(FEATURES, name) for name in prepared.loaded}
    moved = dict[str, MovedEdges]()
    for relation, of in prepared.graph.of_relations(prepared.plan.program).items():
        since = prepared.moved.get(of)
        fresh = parts.fresh.get(tensor_name(EDGES, relation))
        if since is None or fresh is None or since.key != store.key:
            continue
        if since.read.issuperset(fresh):
            moved[relation] = since.edges
    return EarlierDigests(
        Kept(store, Seal.from_json(record)),
        parts.unchanged,
        {name: of for name, of in parts.fresh.items() if of and name in features},
        moved,
    )


@dataclass(frozen=True)
class _Parts:
    """What digests are made of, beside what those of the base are made of.

    Attributes:
        unchanged: names of digests that are made of the same.
        fresh: name of digests -> the parts that those of the base were not made of, or that were
            touched since; of those that are made of the same beside their parts.
    """

    unchanged: list[str] = field(default_factory=list)
    fresh: dict[str, list[str]] = field(default_factory=dict)


def _parts(ctx: RunContext, seal: Seal, store: LayerStore, made_of: dict[str, RowInputs]) -> _Parts:
    before = {tensor.name: tensor for tensor in seal.tensors}
    # What another run or attempt with the same key has sealed stays, though files were touched.
    versions = (seal.version, store.version)

    def is_touched(uris: Iterable[str]) -> bool:
        return any(touched(ctx.storage, since, [*uris]) for since in versions)

    found = _Parts()
    for name, of in made_of.items():
        then = before.get(name)
        if then is None or then.made_of != of.beside or is_touched(of.more):
            continue
        parts = set(then.parts)
        found.fresh[name] = [
            part for part, uris in of.parts.items() if part not in parts or is_touched(uris)
        ]
        if not found.fresh[name] and then.parts == tuple(of.parts):
            found.unchanged.append(name)
    return found
