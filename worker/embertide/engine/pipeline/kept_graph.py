"""The graph that the current version, or a failed attempt, has kept: its edges are not read.

A relation's graph is kept with the rows of the layers. It is used where nothing that it is made of
has changed since: the objects of its edges, what the job says of these, and which nodes there are.
Where some of the objects are others, these are read alone, and compared with the edges that were
read of those before, which are kept too. A run keeps its own graph for the one that follows
(:mod:`embertide.engine.pipeline.graph_keeping`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from embertide.context import RunContext
from embertide.engine.pipeline.typed_graph import ingest_type
from embertide.engine.planning.base_version import kept_key, touched
from embertide.engine.planning.inputs import Inputs, layer_key
from embertide.engine.planning.row_inputs import (
    RowInputs,
    graph_of,
    keeps_read,
    part_of,
    wherever,
)
from embertide.engine.stages.features import LoadedNodes
from embertide.engine.stages.kept_graph import (
    ReadEdges,
    SealedGraph,
    of_key,
    open_graph,
)
from embertide.engine.stages.limits import check_unchanged
from embertide.engine.stages.loops import LoopCount
from embertide.errors import EmbertideError
from embertide.graph.moved_edges import READ, MovedEdges, ReadEdgeWords, find_moved
from embertide.graph.objects import broadcast_object
from embertide.graph.shuffle import Edges
from embertide.grid import RowRanges
from embertide.io.readers.ids import Mask
from embertide.io.readers.splits import Split, assign_splits
from embertide.io.versions.layers.attempts import Attempt
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import (
    Damaged,
    EdgePart,
    KeptEdges,
    KeptTensor,
    Seal,
    kept_words,
)
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.writing import Record, Writer
from embertide.kernels.csr import Csr
from embertide.spec.edges import EdgeInput
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.relations import Relation

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
        moved: relation -> the edges that have moved since its graph was kept, where only these
            were read.
        parts: edge type -> the parts of its objects, and where the edges that were read of them are
            among those that are kept.
        keeps: the run keeps edges as they were read, beside the graphs.
    """

    version: str
    base: str = ""
    sealed: dict[Relation, SealedGraph] = field(default_factory=dict)
    read: dict[Relation, ReadEdges] = field(default_factory=dict)
    made_of: dict[Relation, RowInputs] = field(default_factory=dict)
    moved: dict[Relation, Moved] = field(default_factory=dict)
    parts: dict[Relation, list[EdgePart]] = field(default_factory=dict)
    keeps: Callable[[RunContext, LayerStore], Writer] | None = None
    records: dict[Relation, Record] = field(default_factory=dict)
    carried: dict[Relation, Kept] = field(default_factory=dict)
    _marks: list[Attempt] = field(default_factory=list)

    def release(self) -> None:
        """What was kept is not needed any more, and may be removed."""
        while self._marks:
            self._marks.pop().__exit__(None, None, None)

    def find(
        self,
        ctx: RunContext,
        inputs: Inputs,
        nodes: dict[str, LoadedNodes],
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
        found = self._look(ctx, inputs, every) if ctx.grid.rank == 0 else {}
        if ctx.grid.world > 1:
            found = broadcast_object(found, ctx.grid.rank)
        stand_ins = dict[Relation, Edges]()
        for edge, own in every:
            if str(edge.relation) not in found:
                continue
            records = found[str(edge.relation)]
            graphs = [self._open(ctx, of, records["key"], records[str(of)], nodes) for of in own]
            sealed = {of: one for of, one in zip(own, graphs, strict=True) if one is not None}
            if len(sealed) < len(own):
                continue
            read = (
                None
                if records["read"] is None
                else self._kept(ctx, records["key"], records["read"])
            )
            parts = sealed[own[0]].known.parts
            if [part.part for part in parts] != list(self.made_of[own[0]].parts):
                assert read is not None, "edges are patched with those that were read"
                if not self._read_others(ctx, inputs, nodes, edge, sealed, read):
                    continue
            else:
                self.parts[edge.relation] = list(parts)
                if read is not None:
                    self.carried[edge.relation] = read
            self.sealed |= sealed
            stand_ins |= _stand_ins(edge, sealed, ctx.grid.rank)
        return stand_ins

    def _read_others(
        self,
        ctx: RunContext,
        inputs: Inputs,
        nodes: dict[str, LoadedNodes],
        edge: EdgeInput,
        sealed: dict[Relation, SealedGraph],
        read: Kept,
    ) -> bool:
        """Read the objects alone that the graphs of an edge type are not made of, and note which
        edges have moved; whether these are few enough to be put into the graphs.

        Collective: every rank must call.

        Args:
            sealed: the graphs; those that follow take their places.
            read: the edges that were read for them.
        """
        name, (rank, world) = str(edge.relation), (ctx.grid.rank, ctx.grid.world)
        known, parts = read.seal.edges, self.made_of[next(iter(sealed))].parts
        assert known is not None, "they are of edges"
        then = {part.part: part for part in known.parts}
        fresh = [split for split in inputs.by_edges[name] if part_of(wherever(split)) not in then]
        gone = [part for part in known.parts if part.part not in parts]
        some = replace(inputs, by_edges={**inputs.by_edges, name: fresh})
        edges = ingest_type(ctx, some, nodes, edge)[edge.relation]
        words, why = ReadEdgeWords(tuple(edges.chunks), edges.weighted), ""
        before = [np.empty((0, words.shape[1]), np.int32)]
        try:
            for part in gone[rank::world]:
                own = np.empty((part.last - part.first, words.shape[1]), np.int32)
                read.get(READ, (part.first, part.last), own)
                before.append(own)
        except Damaged as error:
            why = str(error)
        if self._is_bad(ctx, next(iter(sealed)), read.store, why):
            return False
        count, targets = next(iter(sealed.values())).count, nodes[edge.destination_type].ids.count
        moved = find_moved(ctx.exchange, targets, count, np.concatenate(before), words[:])
        if moved is None:
            return False
        at = read.tensor(READ).rows
        own_first, new = _numbered(ctx, fresh, edges, at)
        then |= {part.part: part for part in new}
        now = self.parts[edge.relation] = [then[part] for part in parts]
        rows = sum(part.rows for part in now)
        for relation, graph in sealed.items():
            of = moved if relation == edge.relation else moved.turned()
            self.moved[relation] = Moved(read.store.key, frozenset(part.part for part in new), of)
            sealed[relation] = graph.after(of, rows, now)
        if self.keeps is not None:
            store = self._own_store(ctx, inputs)
            tensor = of_key(read.tensor(READ), read.store.key, store.key)
            self._put(ctx, edge, store, replace(tensor, rows=at + _edges(new)), words, own_first)
        return True

    def keep_read(
        self,
        ctx: RunContext,
        inputs: Inputs,
        given: Sequence[EdgeInput],
        edges: Mapping[Relation, Edges],
    ) -> None:
        """Keep edges as they were read, of edge types with several objects; wait until they are
        written, since they leave memory before their graph is there.

        Collective: every rank must call.

        Args:
            given: edge types as they are read.
        """
        for edge in given:
            relation, splits = edge.relation, inputs.by_edges[str(edge.relation)]
            if relation not in edges or relation in self.parts:
                continue
            own = edges[relation]
            first, self.parts[relation] = _numbered(ctx, splits, own, 0)
            if self.keeps is None or ctx.disk is not None or not keeps_read(edge, splits):
                continue
            words = ReadEdgeWords(tuple(own.chunks), own.weighted)
            tensor = kept_words(READ, _edges(self.parts[relation]), words.shape[1])
            self._put(ctx, edge, self._own_store(ctx, inputs), tensor, words, first)
            self.records[relation].wait()

    def _put(
        self,
        ctx: RunContext,
        edge: EdgeInput,
        store: LayerStore,
        tensor: KeptTensor,
        words: ReadEdgeWords,
        first: int,
    ) -> None:
        """Begin to write edges as they were read; all ranks begin."""
        assert self.keeps is not None
        parts = self.parts[edge.relation]
        known = KeptEdges(
            str(edge.relation), sum(of.rows for of in parts), None, parts=tuple(parts)
        )
        name = read_name(edge.relation, self.made_of[self._read_of(edge)])
        record = self.keeps(ctx, store).begin(name, edges=known)
        record.put(tensor, words, first)
        self.records[edge.relation] = record

    def _read_of(self, edge: EdgeInput) -> Relation:
        """A relation of an edge type that the model reads."""
        return next(relation for relation in edge.relations if relation in self.made_of)

    def _own_store(self, ctx: RunContext, inputs: Inputs) -> LayerStore:
        key, output = layer_key(ctx.job, inputs), ctx.job.spec.published_uri
        return LayerStore(ctx.storage, output, key, self.version, on_one_machine(ctx))

    def note(self, job: EmbeddingJob, edges: Mapping[Relation, Edges]) -> None:
        """Note what is known of edges beside the graphs that will be built from them."""
        for edge in job.spec.input.edges:
            for relation in edge.relations:
                if relation in edges and relation in self.made_of:
                    own, parts = edges[edge.relation], self.parts.get(edge.relation, [])
                    self.read[relation] = ReadEdges.of(edges[relation], own, parts)

    def note_loops(self, loops: LoopCount, rank: int) -> None:
        """Note of which self-loops the graphs have one in place of several, and count those of
        graphs that were read back."""
        for relation, sealed in self.sealed.items():
            if (known := sealed.known.loops) is not None and rank == 0:
                loops.add(relation, (known[0], known[1]), by_job=True)
        for relation, found in loops.by_job.items():
            if relation in self.read:
                self.read[relation] = replace(self.read[relation], loops=found)

    def _look(
        self, ctx: RunContext, inputs: Inputs, every: list[tuple[EdgeInput, list[Relation]]]
    ) -> dict[str, dict[str, Any]]:
        """Edge type -> the key and the records of its graphs, and of the edges that were read for
        them; runs on rank 0."""
        answer = dict[str, dict[str, Any]]()
        stores = self._stores(ctx, inputs)
        for edge, own in every:
            for store in stores if own else ():
                try:
                    records = self._records(ctx, inputs, store, edge, own)
                except (Damaged, EmbertideError) as error:
                    _warn(ctx, own[0], str(error))
                    continue
                if records is not None:
                    answer[str(edge.relation)] = records
                    break
        return answer

    def _records(
        self,
        ctx: RunContext,
        inputs: Inputs,
        store: LayerStore,
        edge: EdgeInput,
        own: list[Relation],
    ) -> dict[str, Any] | None:
        """Records of one key that may be used; None where there are none.

        Raises:
            Damaged: one cannot be read, or an object of its edges was written to since.
        """
        seals, made_of = dict[Relation, Seal](), self.made_of[own[0]]
        for relation in own:
            if (seal := store.sealed(record_name(relation, made_of))) is None:
                return None
            seals[relation] = seal
        known = [seal.edges for seal in seals.values() if seal.edges is not None]
        then = {tuple(part.part for part in of.parts) for of in known}
        if len(then) != 1 or len(made_of.parts) != len(inputs.by_edges[str(edge.relation)]):
            return None
        uris = sorted({
            uri for part, of in made_of.parts.items() if part in next(iter(then)) for uri in of
        })  # fmt: skip
        for seal in seals.values():
            if change := touched(ctx.storage, seal.version, uris):
                raise Damaged(change)
        read = None
        with suppress(Damaged, EmbertideError):
            read = store.sealed(read_name(edge.relation, made_of))
        # Another attempt's may be of a file as it was before it was written to.
        of_one = read is not None and {seal.version for seal in seals.values()} == {read.version}
        if not of_one or read is None or read.edges is None or read.edges.parts != known[0].parts:
            read = None
        same = then == {tuple(made_of.parts)}
        if not same and (read is None or self.base or not _pays(ctx, inputs, edge, known, read)):
            return None
        return {
            "key": store.key,
            "read": None if read is None else read.to_json(),
            **{str(relation): seal.to_json() for relation, seal in seals.items()},
        }

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

    def _kept(self, ctx: RunContext, key: str, record: dict[str, Any]) -> Kept:
        store = LayerStore(ctx.storage, ctx.job.spec.published_uri, key, self.version)
        return Kept(store, Seal.from_json(record))

    def _open(
        self,
        ctx: RunContext,
        relation: Relation,
        key: str,
        record: dict[str, Any],
        nodes: Mapping[str, LoadedNodes],
    ) -> SealedGraph | None:
        kept = self._kept(ctx, key, record)
        counts = (nodes[end].ids.count for end in (relation.source, relation.destination))
        graph, why = None, ""
        try:
            graph = open_graph(kept, *counts)
        except Damaged as error:
            why = str(error)
        return None if self._is_bad(ctx, relation, kept.store, why) else graph

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
        self.moved.pop(relation, None)
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


@dataclass(frozen=True)
class Moved:
    """Edges that have moved since a graph was kept.

    Attributes:
        key: of the layers beside which it was.
        read: the parts that were read for it now.
    """

    key: str
    read: frozenset[str]
    edges: MovedEdges


def on_one_machine(ctx: RunContext) -> bool:
    """Whether all workers are known to be on one machine."""
    return ctx.grid.world == 1 or ctx.exchange.channel("world", "features").in_place


def _pays(
    ctx: RunContext, inputs: Inputs, edge: EdgeInput, known: list[KeptEdges], read: Seal
) -> bool:
    """Whether a graph is patched: at least half of the bytes need not be read, and most of the
    edges that are kept as they were read are those of objects that are still there."""
    splits, parts = inputs.by_edges[str(edge.relation)], {part.part for part in known[0].parts}
    fresh = sum(split.size for split in splits if part_of(wherever(split)) not in parts)
    return (
        ctx.disk is None
        and keeps_read(edge, splits)
        and 2 * fresh <= sum(split.size for split in splits)
        and sum(tensor.rows for tensor in read.tensors) <= 2 * _edges(known[0].parts)
    )


def _edges(parts: Iterable[EdgePart]) -> int:
    return sum(part.last - part.first for part in parts)


def _numbered(
    ctx: RunContext, splits: list[Split], edges: Edges, at: int
) -> tuple[int, list[EdgePart]]:
    """Where our edges begin among those of all ranks, which begin at some number; and what was read
    of each split. Collective: every rank must call.

    Args:
        splits: of all ranks.
        edges: ours.
    """
    mine = assign_splits(splits, ctx.grid.world)[ctx.grid.rank]
    own = [(part_of(wherever(split)), *part) for split, part in zip(mine, edges.parts, strict=True)]
    parts, first = list[EdgePart](), at
    for rank, theirs in enumerate(ctx.exchange.all_objects(own)):
        first = at if rank == ctx.grid.rank else first
        for part, rows, count in theirs:
            parts.append(EdgePart(part, rows, at, at + count))
            at += count
    return first, parts


def record_name(relation: Relation, made_of: RowInputs) -> str:
    """The name of a graph's record."""
    return hashlib.sha256(f"graph {relation} {made_of.beside}".encode()).hexdigest()[:32]


def read_name(relation: Relation, made_of: RowInputs) -> str:
    """The name of the record of an edge type's edges as they were read."""
    return hashlib.sha256(f"edges {relation} {made_of.beside}".encode()).hexdigest()[:32]


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
        Damaged: it cannot be read, is of other objects, or one of these was written to since.
    """
    seal = store.sealed(record_name(relation, made_of))
    known = None if seal is None else seal.edges
    if known is not None and [part.part for part in known.parts] != list(made_of.parts):
        raise Damaged(f"{store.uri}: the graph of {relation} is of other objects")
    if seal is not None and (change := touched(ctx.storage, seal.version, made_of.uris)):
        raise Damaged(change)
    return seal


def _warn(ctx: RunContext, relation: Relation, why: str) -> None:
    ctx.graph_facts.kept.warn(NOT_USED.format(relation=relation, why=why))
