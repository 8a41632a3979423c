"""The graph that the current version, or a failed attempt, has kept: its edges are not read.

A relation's graph is kept with the rows of the layers. It is used where nothing that it is made of
has changed since: the objects of its edges, what the job says of these, and which nodes there are.
A run keeps its own for the one that follows. What was read back is not written again: its record
refers to the blocks of the run that wrote it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import numpy as np

from embertide.context import RunContext
from embertide.engine.pipeline.typed_graph import TypedGraph, ingest_type
from embertide.engine.planning.base_version import kept_key, touched
from embertide.engine.planning.inputs import Inputs, layer_key
from embertide.engine.planning.row_inputs import RowInputs, graph_of
from embertide.engine.stages.features import LoadedNodes
from embertide.engine.stages.kept_graph import (
    ReadEdges,
    SealedGraph,
    open_graph,
    refer_to,
    write_graph,
)
from embertide.engine.stages.limits import check_unchanged
from embertide.engine.stages.loops import LoopCount
from embertide.errors import EmbertideError
from embertide.graph.objects import broadcast_object
from embertide.graph.shuffle import Edges
from embertide.grid import RowRanges
from embertide.io.readers.ids import Mask
from embertide.io.versions.layers.attempts import Attempt
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.writing import Record, Writer
from embertide.kernels.csr import Csr
from embertide.spec.edges import EdgeInput
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.relations import Relation

NOT_KEPT = "the graph of {relation} is not kept for the next run: {why}"
NOT_USED = "the kept graph of {relation} is not used, and its edges are read: {why}"


@dataclass
class KeptGraph:
    """What a run takes over of a graph that was kept.

    :meth:`find` and :meth:`read_back` are collective: every rank must call.

    Attributes:
        version: of the run.
        base: the key of a version's layers, of which alone a graph is read; "": of the current
            one's, or of those that an attempt has left.
        sealed: relation -> what was kept of it, of those that may be read back; those that were
            stay here.
        read: relation -> what is known of its edges.
        made_of: relation -> what its graph is made of.
    """

    version: str
    base: str = ""
    sealed: dict[Relation, SealedGraph] = field(default_factory=dict)
    read: dict[Relation, ReadEdges] = field(default_factory=dict)
    made_of: dict[Relation, RowInputs] = field(default_factory=dict)
    _marks: list[Attempt] = field(default_factory=list)

    def release(self) -> None:
        """What was kept is not needed any more, and may be removed."""
        while self._marks:
            self._marks.pop().__exit__(None, None, None)

    def find(
        self,
        ctx: RunContext,
        inputs: Inputs,
        nodes: Mapping[str, LoadedNodes],
        edges: Sequence[EdgeInput],
        relations: Collection[Relation],
    ) -> dict[Relation, Edges]:
        """What stands for the edges whose graphs were kept, see :class:`SealedGraph`.

        The edges of an edge type are read unless the graphs of all its relations were kept.

        Args:
            edges: as they are read, with features where the model reads them.
            relations: those that the model reads.
        """
        counts = _digests(ctx, nodes)
        every = [(edge, [own for own in edge.relations if own in relations]) for edge in edges]
        self.made_of = {
            relation: graph_of(inputs, edge, counts) for edge, own in every for relation in own
        }
        answer = self._look(ctx, inputs) if ctx.grid.rank == 0 else {}
        if ctx.grid.world > 1:
            answer = broadcast_object(answer, ctx.grid.rank)
        graphs = {
            relation: self._open(ctx, relation, answer[str(relation)], nodes)
            for relation in self.made_of
            if str(relation) in answer
        }
        stand_ins = dict[Relation, Edges]()
        for edge, own in every:
            sealed = {relation: graph for relation in own if (graph := graphs.get(relation))}
            if own and len(sealed) == len(own):
                self.sealed |= sealed
                stand_ins |= _stand_ins(edge, sealed, ctx.grid.rank)
        return stand_ins

    def note(self, job: EmbeddingJob, edges: Mapping[Relation, Edges]) -> None:
        """Note what is known of edges beside the graphs that will be built from them."""
        for edge in job.spec.input.edges:
            for relation in edge.relations:
                if relation in edges and relation in self.made_of:
                    self.read[relation] = ReadEdges.of(edges[relation], edges[edge.relation])

    def note_loops(self, loops: LoopCount, rank: int) -> None:
        """Note of which self-loops the graphs have one in place of several, and count those of
        graphs that were read back."""
        for relation, sealed in self.sealed.items():
            if (known := sealed.known.loops) is not None and rank == 0:
                loops.add(relation, (known[0], known[1]), by_job=True)
        for relation, found in loops.by_job.items():
            if relation in self.read:
                self.read[relation] = replace(self.read[relation], loops=found)

    def _look(self, ctx: RunContext, inputs: Inputs) -> dict[str, object]:
        """Relation -> key and record of its graph; runs on rank 0."""
        answer: dict[str, object] = {}
        stores = self._stores(ctx, inputs)
        for relation, made_of in self.made_of.items():
            for store in stores:
                try:
                    seal = sealed_graph(ctx, store, relation, made_of)
                except (Damaged, EmbertideError) as error:
                    _warn(ctx, relation, str(error))
                    continue
                if seal is not None:
                    answer[str(relation)] = [store.key, seal.to_json()]
                    break
        return answer

    def _stores(self, ctx: RunContext, inputs: Inputs) -> list[LayerStore]:
        """Where a graph may be: of an attempt with the same inputs, and of the current version."""
        spec, storage, output = ctx.job.spec.refresh, ctx.storage, ctx.job.spec.published_uri
        own, base, stores = layer_key(ctx.job, inputs), self.base, list[LayerStore]()
        # The run says itself why it does not go on from a version that it cannot read.
        with suppress(EmbertideError):
            base = base or kept_key(storage, output)
        keys = [own] if own != base and spec.resume != "never" and not self.base else []
        keys += [base] if base and (spec.mode != "full" or self.base) else []
        for key in keys:
            store = LayerStore(storage, output, key, self.version)
            with suppress(EmbertideError):
                if store.is_there():
                    # Its own mark: that of the layers lasts longer.
                    mark = Attempt(storage, output, key, f"{self.version}-graph")
                    mark.begin()
                    self._marks.append(mark)
                    stores.append(store)
        return stores

    def _open(
        self,
        ctx: RunContext,
        relation: Relation,
        answer: object,
        nodes: Mapping[str, LoadedNodes],
    ) -> SealedGraph | None:
        assert isinstance(answer, list)
        key, record = answer
        store = LayerStore(ctx.storage, ctx.job.spec.published_uri, key, self.version)
        counts = (nodes[end].ids.count for end in (relation.source, relation.destination))
        graph, why = None, ""
        try:
            graph = open_graph(Kept(store, Seal.from_json(record)), *counts)
        except Damaged as error:
            why = str(error)
        return None if self._is_bad(ctx, relation, store, why) else graph

    def read_back(
        self,
        ctx: RunContext,
        inputs: Inputs,
        nodes: dict[str, LoadedNodes],
        only: Mapping[str, Mask] | None,
        warnings: list[str],
        relation: Relation,
        ranges: RowRanges,
    ) -> Csr | Edges | None:
        """Our rows of a graph that was kept; its edges where any rank cannot read its own; None
        where it was not kept.

        Args:
            ctx: whose job has what is read alone.
            only: node type -> [N] bool, the nodes whose in-edges alone are read; None: all are.
                On one rank.
            warnings: for the run's user; more are added.
            ranges: of the destination type.
        """
        sealed, csr, why = self.sealed.get(relation), None, ""
        if sealed is None:
            return None
        try:
            if only is None:
                csr = sealed.read(ranges, ctx.grid.rank)
            else:
                csr = sealed.some(only[relation.destination])
        except Damaged as error:
            why = str(error)
        if not self._is_bad(ctx, relation, sealed.kept.store, why):
            ctx.graph_facts.kept.graph.append(str(relation))
            return csr
        del self.sealed[relation]
        (edge,) = (edge for edge in ctx.job.spec.input.edges if relation in edge.relations)
        edges = ingest_type(ctx, inputs, nodes, edge, only)
        # What is listed has to be as it was now, too.
        warnings += check_unchanged(ctx, inputs)
        self.note(ctx.job, edges)
        return edges[relation]

    def _is_bad(self, ctx: RunContext, relation: Relation, store: LayerStore, why: str) -> bool:
        """Whether any rank cannot read a graph, which is a warning.

        A run may seal it again; what reads the graph of one version alone writes nothing.
        """
        problems = list(filter(None, ctx.exchange.all_objects(why)))
        if problems and ctx.grid.rank == 0:
            _warn(ctx, relation, problems[0])
            if not self.base:
                with suppress(EmbertideError):
                    store.drop(record_name(relation, self.made_of[relation]))
        return bool(problems)


def _stand_ins(
    edge: EdgeInput, sealed: Mapping[Relation, SealedGraph], rank: int
) -> dict[Relation, Edges]:
    """In place of the edges of an edge type; its rows count once, as where they are read."""
    every = {relation: graph.edges(rank) for relation, graph in sealed.items()}
    # The model may read the reverse alone.
    own = every.get(edge.relation) or next(iter(sealed.values())).edges(rank)
    for relation, other in every.items():
        if relation != edge.relation:
            other.rows, other.dropped = 0, None
    return {**every, edge.relation: own}


def record_name(relation: Relation, made_of: RowInputs) -> str:
    """The name of a graph's record."""
    return hashlib.sha256(f"graph {relation} {made_of.digest}".encode()).hexdigest()[:32]


def _digests(ctx: RunContext, nodes: Mapping[str, LoadedNodes]) -> dict[str, list[int | str]]:
    """Node type -> what says which nodes there are. Collective: every rank must call."""
    own = [[int(word) for word in of_type.ids.digest()] for of_type in nodes.values()]
    sums = np.array(ctx.exchange.all_objects(own), np.uint64).sum(axis=0)
    return {
        name: [of_type.node.ids, of_type.ids.count, *(f"{word:016x}" for word in words.tolist())]
        for (name, of_type), words in zip(nodes.items(), sums, strict=True)
    }


def sealed_graph(
    ctx: RunContext, store: LayerStore, relation: Relation, made_of: RowInputs
) -> Seal | None:
    """The record of a graph that may be used; None where there is none.

    Raises:
        Damaged: it cannot be read, or an object of its edges was written to since.
    """
    seal = store.sealed(record_name(relation, made_of))
    if seal is not None and (change := touched(ctx.storage, seal.version, made_of.uris)):
        raise Damaged(change)
    return seal


def _warn(ctx: RunContext, relation: Relation, why: str) -> None:
    ctx.graph_facts.kept.warn(NOT_USED.format(relation=relation, why=why))


@contextmanager
def graph_keeping(ctx: RunContext, version: str) -> Iterator[GraphKeeping | None]:
    """What a run takes over of a graph, and keeps; None where tensors are on disk, or some nodes
    are wanted. The body reads, keeps, and waits until what it keeps is sealed.

    Args:
        version: of the run.
    """
    if ctx.scratch is not None or ctx.job.spec.inference.targets is not None:
        yield None
        return
    keeping = GraphKeeping(KeptGraph(version))
    try:
        yield keeping
    finally:
        keeping.close()


class GraphKeeping:
    """What a run keeps of its graph.

    Attributes:
        kept: what it takes over.
    """

    def __init__(self, kept: KeptGraph) -> None:
        self.kept = kept
        self._writer: Writer | None = None
        self._sealing: list[tuple[Relation, Record, Future[str]]] = []
        self._mark: Attempt | None = None

    def close(self) -> None:
        """The run is over, or has failed."""
        self.kept.release()
        if self._writer is not None:
            self._writer.close()
        self._release()

    def _release(self) -> None:
        if self._mark is not None:
            self._mark.__exit__(None, None, None)
            self._mark = None

    def keep(self, ctx: RunContext, graph: TypedGraph, store: LayerStore) -> None:
        """Keep the graph; a thread of rank 0 seals what was written, once the disk has it.

        Collective: every rank must call.

        Args:
            store: of the run's key.
        """
        facts, rank = ctx.graph_facts.kept, ctx.grid.rank
        if rank == 0:
            # Until layers have theirs: what is written meanwhile may not be removed.
            mark = f"{store.version}-keeps"
            self._mark = Attempt(ctx.storage, store.output_uri, store.key, mark)
            self._mark.begin()
        self._writer = Writer(store, rank, ctx.exchange.all_objects, facts.warn)
        for relation, csr in graph.sub_ranges.items():
            assert isinstance(csr, Csr)
            why, size = "", 0
            if rank == 0:
                why, size = self._refer(ctx, self._writer, relation)
            if ctx.grid.world > 1:
                why, size = broadcast_object((why, size), rank)
            if not why and not size:
                made_of, read = self.kept.made_of[relation], self.kept.read[relation]
                name, ranges = (
                    record_name(relation, made_of),
                    graph.located[relation.destination].ranges,
                )
                record = write_graph(
                    ctx.exchange, self._writer, name, str(relation), csr, ranges, read
                )
                why, size = record.why, record.seal.size
                if not why:
                    facts.graph_written_bytes += size
                    if rank == 0:
                        self._sealing.append((relation, record, record.sealing()))
            if not why:
                facts.graph_bytes += size
            elif rank == 0:
                facts.warn(NOT_KEPT.format(relation=relation, why=why))

    def _refer(self, ctx: RunContext, writer: Writer, relation: Relation) -> tuple[str, int]:
        """Why a graph cannot be kept, and its bytes where it need not be written; on rank 0."""
        made_of, store = self.kept.made_of[relation], writer.store
        name = record_name(relation, made_of)
        try:
            try:
                seal = sealed_graph(ctx, store, relation, made_of)
            except Damaged:
                store.drop(name)
                seal = None
            if seal is not None:
                return "", seal.size
        except EmbertideError as error:
            return str(error), 0
        sealed = self.kept.sealed.get(relation)
        if sealed is None:
            return "", 0
        record = refer_to(writer, name, sealed)
        return record.sealing().result(), record.seal.size

    def finish(self, ctx: RunContext) -> None:
        """Wait until every graph that was written is sealed, or has failed."""
        facts = ctx.graph_facts.kept
        for relation, record, sealing in self._sealing:
            if why := sealing.result():
                facts.graph_bytes -= record.seal.size
                facts.graph_written_bytes -= record.seal.size
                facts.warn(NOT_KEPT.format(relation=relation, why=why))
        self._sealing.clear()
        # Else the run would not sweep its own key.
        self._release()
