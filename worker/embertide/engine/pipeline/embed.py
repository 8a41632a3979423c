"""The embeddings of some nodes: all inputs are read, and only the edges that these need gone over.

What is computed has the bits of a run of one worker; where a model multiplies along edges it
differs by rounding. Where a failed attempt of the job has kept layers, their rows are read and the
layers before them are not computed.

Over the rows that the current version has kept (:func:`embed_over_kept`) those of the results are
read and nothing else, where nothing has changed since. Else the edges are read that the nodes that
are asked for have, and new ones: in the kept graph, or among all edges where these have changed.
Then the features of these nodes and of their in-neighbours are read. What is computed for few nodes
takes no time or memory for each node that there is: a graph has those alone that their edges reach,
numbered in their order. A row's in-neighbours stay in their order, so that sums have the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from embertide.context import RunContext
from embertide.engine.pipeline.compute import compute, layer_graphs
from embertide.engine.pipeline.kept_graph import KeptGraph
from embertide.engine.pipeline.prepare import Prepared, Reading, prepare, target_of, to_publish
from embertide.engine.pipeline.typed_graph import Located, TypedGraph
from embertide.engine.planning.base_version import KeptVersion, kept_key, read_kept, touched
from embertide.engine.planning.inputs import Inputs, layer_key, list_inputs
from embertide.engine.planning.matching import chosen_result, match_types, read_job_model
from embertide.engine.planning.readiness import describe, missing_inputs
from embertide.engine.stages.changes import (
    IDS,
    count_newer,
    digest_ids,
    find_before,
    read_degrees,
    tensor_name,
)
from embertide.engine.stages.features import LoadedNodes, read_some_features
from embertide.engine.stages.infer import (
    Engine,
    Keeping,
    KeptRows,
    OverKept,
    Request,
    arrange,
    check_over_kept,
    infer_over_kept,
    sealed_end,
)
from embertide.engine.stages.verify import Expected
from embertide.errors import EmbertideError, InputError, InputsNotReady
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.memory import MemoryWatch
from embertide.facts.telemetry.progress import OnProgress
from embertide.facts.telemetry.recorder import NullRecorder
from embertide.graph.exchange import Exchange
from embertide.grid import Grid, RowRanges
from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers.attempts import Attempt
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.csr import Csr, id_type
from embertide.kernels.ids import Ids
from embertide.kernels.spilled_csr import AnyCsr
from embertide.layouts import ROW_TYPES
from embertide.models.read import Model
from embertide.program.plans.boundaries import results_of
from embertide.program.plans.flow import kinds_read
from embertide.program.plans.passes import make_plan
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.nodes import NodeInput
from embertide.spec.relations import Relation
from embertide.spec.result_names import node_type_of
from embertide.spec.version_names import new_version

_SHOWN = 5
OTHER_INPUTS = (
    "the rows that the current version has kept are not used: inputs, model or job have changed"
)
Id = int | str
NOT_USED = (
    "--over-kept: rows that version {version} has kept cannot be used: {why}; run the job to keep"
    " its rows again, or leave out --over-kept, which computes all that the rows are made of"
)


@dataclass(frozen=True)
class OverFacts:
    """What rows rest on that were computed over the kept rows of others.

    Attributes:
        version: whose rows neighbours have, and their degrees.
        tolerance: by which these rows may be off, relative to their norms; 0: they are exact.
        new: nodes beside those that are asked for of which rows were computed, since they are new.
        newer: neighbours whose features are others than those of the version.
    """

    version: str
    tolerance: float = 0.0
    new: int = 0
    newer: int = 0


@dataclass(frozen=True, kw_only=True)
class SomeEmbeddings:
    """The embeddings of some nodes.

    Attributes:
        ids: as they were asked for, each once.
        vectors: [k, D'] float32.
        edges: how many edges all layers went over; ``all_edges`` of how many, 0: unknown.
        resumed: the kept layer that this began after; 0: none. ``resumed_of`` is the run that had
            kept it.
        unused: why kept rows of the current version were not used; "": they were, or there are
            none.
        warnings: sentences for the user.
        over: what the rows rest on where they were computed over the kept rows of others; None:
            they are those of the inputs.
        unchanged: they are the rows of the result that were kept; nothing was computed.
    """

    ids: list[Id]
    vectors: npt.NDArray[np.float32]
    edges: int
    all_edges: int
    resumed: int
    resumed_of: str
    unused: str
    warnings: list[str]
    over: OverFacts | None = None
    unchanged: bool = False


def embed_job(
    job: EmbeddingJob,
    ids: Sequence[Id],
    *,
    node_type: str | None = None,
    result: str | None = None,
    on_progress: OnProgress = lambda _event: None,
) -> SomeEmbeddings:
    """Compute the embeddings of some nodes as a run of one worker does; publishes nothing.

    Needs memory for the whole graph in this process.

    Args:
        node_type: which type's; may be left out where the model gives embeddings of one.
        result: which of the model's results; likewise.

    Raises:
        InputError: an id is not among the nodes; names the first ones.
        EmbertideError: inputs or model cannot be read.
    """
    ctx = one_worker(job, on_progress)
    inputs = list_inputs(ctx.storage, job)
    model = read_job_model(ctx.storage, job, inputs)
    key = chosen_result(job, model.program(), node_type, result)
    node = job.spec.input.node(match_types(job, model.program())[node_type_of(key)])
    asked, dense = list(dict.fromkeys(ids)), list[npt.NDArray[np.int64]]()
    check_kinds(asked, node)

    def find(
        _ctx: RunContext, _inputs: Inputs, _program: Program, nodes: Mapping[str, LoadedNodes]
    ) -> dict[str, Expected]:
        dense.append(find_ids(asked, nodes[node_type_of(key)]))
        return {}

    clock = Clock(MemoryWatch(), on_progress)
    reading = Reading(
        model=lambda _ctx: model,
        choose=lambda _ctx, program: program.only({key: program.results[key]}),
        references=find,
    )
    prepared = prepare(ctx, inputs, clock, reading)
    layers = layer_key(job, inputs)
    return _embed(prepared, clock, key, asked, torch.from_numpy(dense[0]), layers)


def one_worker(job: EmbeddingJob, on_progress: OnProgress) -> RunContext:
    """This process as the only worker of a run, on its CPU.

    Raises:
        InputsNotReady: an input that is waited for is not there.
    """
    storage = open_storage(job.spec.storage)
    if missing := [entry for entry in missing_inputs(storage, job) if not entry.optional]:
        raise InputsNotReady(f"inputs are not ready: {describe(missing)}")
    exchange = Exchange(Grid(GridShape.of(1, 1)), torch.device("cpu"), NullRecorder())
    return RunContext(job, exchange, storage, on_progress, threads=torch.get_num_threads())


def check_kinds(ids: Sequence[Id], node: NodeInput) -> None:
    """Refuse ids of another type than the nodes'."""
    text = node.ids == "string"
    for item in ids:
        if isinstance(item, str) != text:
            kind = "texts" if text else "whole numbers"
            raise InputError(f"--ids has {item!r}, but ids of {node.name!r} are {kind}")
        if isinstance(item, int) and not -(1 << 63) <= item < 1 << 63:
            raise InputError(f"--ids has {item}, which is no id: they have at most 64 bits")


def as_ids(ids: Sequence[Id], node: NodeInput) -> Ids:
    """Ids as readers give them."""
    if node.ids == "string":
        return pa.array(ids, pa.large_string())
    return np.array(ids, dtype=np.int64)


def find_ids(ids: Sequence[Id], nodes: LoadedNodes) -> npt.NDArray[np.int64]:
    """[k] dense ids.

    Raises:
        InputError: some are not there.
    """
    dense = np.asarray(nodes.ids.find(as_ids(ids, nodes.node))).astype(np.int64)
    unknown = [item for item, at in zip(ids, dense, strict=True) if at < 0]
    if unknown:
        raise unknown_ids(unknown, nodes.node.listed_in, nodes.ids.count)
    return dense


def unknown_ids(unknown: Sequence[Id], place: str, count: int) -> InputError:
    """The error for ids that are no nodes.

    Args:
        place: where the nodes are listed, of which there are ``count``.
    """
    shown = ", ".join(repr(item) for item in unknown[:_SHOWN])
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    return InputError(
        f"--ids has {shown}{more}, but {place} has no such node among its {count}; ask for ids"
        " that are there"
    )


def _embed(
    prepared: Prepared,
    clock: Clock,
    key: str,
    ids: list[Id],
    dense: torch.Tensor,
    layers: str,
) -> SomeEmbeddings:
    """Compute the rows of some dense ids of a result.

    Args:
        layers: the key under which a run of the job keeps them.
    """
    ctx, job = prepared.ctx, prepared.ctx.job
    located = prepared.graph.located[prepared.names[node_type_of(key)]]
    rows = torch.zeros(located.ranges.nodes, dtype=torch.bool)
    rows[dense] = True
    version, output = new_version(), job.spec.published_uri
    layer_store = LayerStore(ctx.storage, output, layers, version)
    uris = [item["uri"] for item in prepared.inputs.of_layers()]
    with Attempt(ctx.storage, output, layer_store.key, version) as attempt:
        keeping = Keeping(
            layer_store, (), attempt.begin, lambda since: touched(ctx.storage, since, uris)
        )
        request = Request(chosen={node_type_of(key): rows}, keeping=keeping)
        computed = compute(prepared, clock, request)[key]
    facts = ctx.graph_facts
    places = torch.cumsum(rows, 0)[dense] - 1
    return SomeEmbeddings(
        ids=ids,
        vectors=computed[places].numpy(),
        edges=facts.chosen.edges,
        all_edges=facts.chosen.all_edges,
        resumed=facts.kept.resumed,
        resumed_of=facts.kept.version,
        unused="" if facts.kept.resumed else _why_unused(ctx, layers),
        warnings=[*facts.omissions.sentences, *facts.kept.problems, *prepared.warnings],
    )


def _why_unused(ctx: RunContext, layers: str) -> str:
    """Why the rows that the current version has kept were not used; "" where it has kept none."""
    try:
        kept = kept_key(ctx.storage, ctx.job.spec.published_uri)
    except EmbertideError as error:
        return f"the current version cannot be read: {error}"
    return OTHER_INPUTS if kept and kept != layers else ""


def embed_over_kept(
    job: EmbeddingJob,
    ids: Sequence[Id],
    *,
    node_type: str | None = None,
    result: str | None = None,
    on_progress: OnProgress = lambda _event: None,
) -> SomeEmbeddings:
    """Compute the embeddings of some nodes, each layer over the kept rows of their neighbours.

    Rows and degrees of neighbours are those of the current version; features, which are not kept,
    and all that concerns the nodes themselves are those of the inputs. New neighbours are computed
    in the same way. Publishes nothing.

    Args:
        node_type: which type's; may be left out where the job publishes embeddings of one.
        result: which of the results that the job publishes; likewise.

    Raises:
        InputError: an id is not among the nodes; or the current version has kept no rows, they are
            damaged or of another model, or the model needs more of neighbours than these.
        EmbertideError: inputs or model cannot be read.
    """
    ctx = one_worker(job, on_progress)
    kept = read_kept(ctx.storage, job)
    inputs = list_inputs(ctx.storage, job)
    model = read_job_model(ctx.storage, job, inputs)
    kept.check_model(model.digest, inputs.tables_of_model())
    output = job.spec.published_uri
    store = LayerStore(ctx.storage, output, kept.key, kept.version)
    program = to_publish(ctx, model.program())
    key = chosen_result(job, program, node_type, result)
    check_over_kept(make_plan(program, target_of(ctx)), sampled=_is_sampled(job))
    asked = list(dict.fromkeys(ids))
    check_kinds(asked, job.spec.input.node(match_types(job, program)[node_type_of(key)]))
    work = _Work(ctx, inputs, model, kept, store, key, asked)
    with Attempt(ctx.storage, output, kept.key, new_version()) as attempt:
        attempt.begin()
        try:
            return work.unchanged(program) if _is_same(ctx, inputs, kept) else work.compute()
        except Damaged as error:
            raise InputError(NOT_USED.format(version=kept.version, why=error)) from error


def _is_sampled(job: EmbeddingJob) -> bool:
    return job.spec.inference.fanout != "full"


def _is_same(ctx: RunContext, inputs: Inputs, kept: KeptVersion) -> bool:
    """Whether a run now would compute the version's own rows again."""
    uris = [item["uri"] for item in inputs.of_layers()]
    same = layer_key(ctx.job, inputs) == kept.key
    return same and not touched(ctx.storage, kept.version, uris)


@dataclass
class _Work:
    """What is asked of a version's kept rows.

    Attributes:
        before: node type, by the program's name -> [N] the dense id that each node had then.
        dense: the nodes that are asked for; both of all nodes, and then of those that are near.
    """

    ctx: RunContext
    inputs: Inputs
    model: Model
    kept: KeptVersion
    store: LayerStore
    key: str
    asked: list[Id]
    before: dict[str, torch.Tensor] = field(default_factory=dict)
    dense: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def unchanged(self, program: Program) -> SomeEmbeddings:
        """The kept rows of the result itself: nothing else is read.

        Raises:
            Damaged: they are not what was written.
        """
        plan, job = make_plan(program, target_of(self.ctx)), self.ctx.job
        name, rows = program.results[self.key], job.spec.inference.rows
        seal = sealed_end(self.store, plan, results_of(plan), rows, self.kept.basis)
        node = job.spec.input.node(match_types(job, program)[node_type_of(self.key)])
        of, record, names = node_type_of(self.key), self._digests(), as_ids(self.asked, node)
        then = record.has(tensor_name(IDS, of)) or 0
        if node.ids == "dense" and then and self.kept.same_job:
            places = np.asarray(names)
            places = np.where((places < 0) | (places >= then), -1, places)
        else:
            places = find_before(record, of, digest_ids(names))
        if unknown := [item for item, at in zip(self.asked, places, strict=True) if at < 0]:
            raise unknown_ids(unknown, node.listed_in, then)
        kept = Kept(self.store, seal)
        tensor = kept.tensor(name)
        vectors = np.empty((len(places), tensor.width), np.float32)
        if ROW_TYPES.get(tensor.dtype) is not torch.float32:
            raise Damaged(f"{self.store.uri}: {name} is not float32")
        kept.get(name, places, vectors)
        facts = OverFacts(self.kept.version, self.kept.tolerance)
        return replace(self._answer(vectors, facts, []), unchanged=True)

    def compute(self) -> SomeEmbeddings:
        """Read the inputs, and compute the rows.

        Raises:
            Damaged: what was kept is not what was written, or not of this model.
        """
        clock = Clock(MemoryWatch(), self.ctx.report)
        there = KeptGraph(new_version(), self.kept.key)
        try:
            reading = Reading(
                model=lambda _ctx: self.model,
                references=lambda *_: {},
                later=True,
                edges_of=self._edges_of,
                kept=there,
            )
            prepared = prepare(self.ctx, self.inputs, clock, reading)
        finally:
            there.release()
        ctx, of = prepared.ctx, node_type_of(self.key)
        near = self._near(prepared)
        rows = torch.zeros(len(self.before[of]), dtype=torch.bool)
        rows[self.dense] = True
        with clock.stage("infer"):
            ranges, locations = near.graph.of_types(prepared.names)
            layers = arrange(ctx, prepared.plan, ranges)
            graphs = layer_graphs(ctx, layers, near.graph, clock)
            loaded = {name: own.without_rows() for name, own in prepared.loaded.items()}
            engine = Engine.of(ctx, layers, graphs, loaded, locations, clock)
            features = partial(near_features, prepared, near)
            there_too = self._kept_rows(prepared, near, there)
            over = infer_over_kept(engine, features, there_too, {of: rows})
        places = torch.cumsum(rows, 0)[self.dense] - 1
        rests_on = self._facts(over)
        facts = ctx.graph_facts
        problems = [*facts.omissions.sentences, *facts.kept.problems, *prepared.warnings]
        return self._answer(over.rows[self.key][places].numpy(), rests_on, problems, over.edges)

    def _near(self, prepared: Prepared) -> NearGraph:
        """The graph of the nodes that are near those that are computed; nodes have the numbers that
        they have in it from now on."""
        some = {prepared.names[of]: torch.where(rows < 0)[0] for of, rows in self.before.items()}
        of = node_type_of(self.key)
        asked = torch.from_numpy(self.dense)
        some[prepared.names[of]] = torch.cat([some[prepared.names[of]], asked])
        near = near_graph(prepared.graph, some)
        ids = {name: near.ids[own] for name, own in prepared.names.items()}
        self.before = {name: rows[ids[name]] for name, rows in self.before.items()}
        self.dense = torch.searchsorted(ids[of], asked).numpy()
        return near

    def _edges_of(
        self, _ctx: RunContext, program: Program, nodes: Mapping[str, LoadedNodes]
    ) -> dict[str, torch.Tensor]:
        """Node type -> the nodes whose edges are needed: those that are asked for, and new ones."""
        needed = dict[str, torch.Tensor]()
        for of in dict.fromkeys(program.types.values()):
            self.before[of] = self._before(of, nodes[of])
            needed[of] = self.before[of] < 0
        of = node_type_of(self.key)
        self.dense = find_ids(self.asked, nodes[of])
        needed[of][self.dense] = True
        return needed

    def _before(self, of: str, nodes: LoadedNodes) -> torch.Tensor:
        """[N] the dense id that each node of a type had then; -1: it is new."""
        count, record = nodes.ids.count, self._digests()
        then = record.has(tensor_name(IDS, of))
        if nodes.node.ids == "dense" and then and self.kept.same_job:
            # So they were then, and nodes that came since are the last ones.
            before = torch.arange(count)
            before[then:] = -1
            return before
        names, _ = nodes.ids.original(RowRanges((0, count), 1))
        return torch.from_numpy(find_before(record, of, digest_ids(names)))

    def _kept_rows(self, prepared: Prepared, near: NearGraph, there: KeptGraph) -> KeptRows:
        graph, program = near.graph, prepared.plan.program
        weighted = {
            name: graph.sub_ranges[relation].weighted
            for name, relation in graph.of_relations(program).items()
        }
        degrees = read_degrees(
            self.store, self.kept.record, kinds_read(program, weighted), self.before
        )
        return KeptRows(
            store=self.store, basis=self.kept.basis, before=self.before, degrees=degrees,
            same=[name for name, of in graph.of_relations(program).items() if of in there.sealed],
        )  # fmt: skip

    def _facts(self, over: OverKept) -> OverFacts:
        """What the rows rest on."""
        new = newer = 0
        for of, rows in over.computed.items():
            new += int((rows & (self.before[of] < 0)).sum())
            if (read := over.features.get(of)) is None:
                continue
            others = read.rows & (self.before[of] >= 0)
            if of == node_type_of(self.key):
                others[self.dense] = False
            if bool(others.any()):
                data, places = read.values[others[read.rows]], self.before[of][others].numpy()
                newer += count_newer(self._digests(), of, data, places)
        new -= int((self.before[node_type_of(self.key)][self.dense] < 0).sum())
        return OverFacts(self.kept.version, self.kept.tolerance, new, newer)

    def _answer(
        self,
        vectors: npt.NDArray[np.float32],
        facts: OverFacts,
        warnings: list[str],
        edges: int = 0,
    ) -> SomeEmbeddings:
        return SomeEmbeddings(
            ids=self.asked,
            vectors=vectors,
            edges=edges,
            all_edges=0,
            resumed=0,
            resumed_of="",
            unused="",
            warnings=[*self.kept.warnings, *warnings],
            over=facts,
        )

    def _digests(self) -> Kept:
        """The digests of the version's rows.

        Raises:
            Damaged: it is not there, or is not what was written.
        """
        seal = self.store.sealed(self.kept.record)
        if seal is None:
            raise Damaged(f"{self.store.uri}: its digests of rows are gone")
        return Kept(self.store, seal)


# -- the part of a graph that few nodes reach --------------------------------------------------
@dataclass(frozen=True)
class NearGraph:
    """The part of a graph.

    Attributes:
        ids: node type -> [k] dense ids of the nodes that are part of it, ascending.
    """

    graph: TypedGraph
    ids: dict[str, torch.Tensor]


def near_graph(whole: TypedGraph, some: Mapping[str, torch.Tensor]) -> NearGraph:
    """The nodes that some edge has an end at, and others; and all edges. Of one process.

    Args:
        some: node type -> [n] dense ids of nodes that are part of it in any case.
    """
    ids = {name: _near(whole, name, some.get(name)) for name in whole.located}
    sub_ranges: dict[Relation, AnyCsr] = {}
    for relation, csr in whole.sub_ranges.items():
        assert isinstance(csr, Csr), "it is in memory"
        sources, targets = ids[relation.source], ids[relation.destination]
        indptr = torch.zeros(len(targets) + 1, dtype=torch.int64)
        torch.cumsum(csr.indptr[targets + 1] - csr.indptr[targets], 0, out=indptr[1:])
        cols = torch.searchsorted(sources, csr.cols.long()).to(id_type(len(sources)))
        sub_ranges[relation] = Csr(0, indptr, cols, csr.weights, csr.features)
    located = {name: _located(whole.located[name], own) for name, own in ids.items()}
    return NearGraph(TypedGraph(located, sub_ranges), ids)


def _near(whole: TypedGraph, name: str, some: torch.Tensor | None) -> torch.Tensor:
    """[k] the nodes of a type; of each at least one, since no tensor is without rows."""
    near = torch.zeros(whole.located[name].ranges.nodes, dtype=torch.bool)
    if some is not None:
        near[some] = True
    for relation, csr in whole.sub_ranges.items():
        assert isinstance(csr, Csr), "it is in memory"
        if relation.source == name:
            near[csr.cols.long()] = True
        if relation.destination == name:
            near |= csr.indptr[1:] > csr.indptr[:-1]
    ids = near.nonzero().squeeze(1)
    return ids if len(ids) else torch.zeros(1, dtype=torch.int64)


def _located(whole: Located, ids: torch.Tensor) -> Located:
    at = ids.numpy()
    locations = whole.locations[ids] if len(whole.locations) else whole.locations
    return Located(RowRanges((0, len(ids)), 1), locations, whole.names.take(at), whole.keys[at])


def near_features(prepared: Prepared, near: NearGraph, of: str, rows: torch.Tensor) -> torch.Tensor:
    """[k, D] the features of some nodes of a type: read now, or among all that were.

    Args:
        rows: [N] bool, of the nodes that are near.
    """
    own = prepared.names[of]
    at = near.ids[own][rows]
    if (later := prepared.later.get(of)) is not None:
        return read_some_features(prepared.ctx, later, at.numpy())
    loaded, locations = prepared.loaded[of], near.graph.located[own].locations
    return loaded.data[at if loaded.placed else locations[rows, 1].long()]
