"""The graph that a run keeps for the one that follows, and the edges as they were read beside it.

What was read back is not written again: its record refers to the blocks of the run that wrote it,
with the edges that have moved since beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

from embertide.context import RunContext
from embertide.engine.pipeline.kept_graph import (
    KeptGraph,
    on_one_machine,
    record_name,
    sealed_graph,
)
from embertide.engine.pipeline.typed_graph import TypedGraph
from embertide.engine.stages.kept_graph import (
    refer_to,
    write_graph,
)
from embertide.errors import EmbertideError
from embertide.graph.moved_edges import MOST_MOVED
from embertide.graph.objects import broadcast_object
from embertide.io.versions.layers.attempts import Attempt
from embertide.io.versions.layers.seals import (
    Damaged,
)
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.writing import Record, Writer
from embertide.kernels.csr import Csr
from embertide.kernels.describe import is_compiled
from embertide.spec.relations import Relation

NOT_KEPT = "the graph of {relation} is not kept for the next run: {why}"


@contextmanager
def graph_keeping(
    ctx: RunContext, version: str, *, keeps_rows: bool
) -> Iterator[GraphKeeping | None]:
    """What a run takes over of a graph, and keeps; None where tensors are on disk, or some nodes
    are wanted. The body reads, keeps, and waits until what it keeps is sealed.

    Args:
        version: of the run.
        keeps_rows: it is to keep the rows of its layers for the next run.
    """
    if ctx.scratch is not None or ctx.job.spec.inference.targets is not None:
        yield None
        return
    keeping = GraphKeeping(KeptGraph(version))
    if keeps_rows and ctx.device.type == "cpu" and is_compiled() and on_one_machine(ctx):
        keeping.kept.keeps = keeping.writer
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
        self._there: dict[Relation, str] = {}
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

    def writer(self, ctx: RunContext, store: LayerStore) -> Writer:
        """What writes below the run's key, which may not be removed meanwhile.

        Args:
            store: of the run's key.
        """
        if self._writer is None:
            if ctx.grid.rank == 0:
                # Until layers have theirs.
                mark = f"{store.version}-keeps"
                self._mark = Attempt(ctx.storage, store.output_uri, store.key, mark)
                self._mark.begin()
            warn = ctx.graph_facts.kept.warn
            self._writer = Writer(store, ctx.grid.rank, ctx.exchange.all_objects, warn)
        return self._writer

    def keep(self, ctx: RunContext, graph: TypedGraph, store: LayerStore) -> None:
        """Keep the graph; a thread of rank 0 seals what was written, once the disk has it.

        Collective: every rank must call.

        Args:
            store: of the run's key.
        """
        facts, rank = ctx.graph_facts.kept, ctx.grid.rank
        writer = self.writer(ctx, store)
        for relation, csr in graph.sub_ranges.items():
            assert isinstance(csr, Csr)
            why, size = "", 0
            if rank == 0:
                why, size = self._refer(ctx, writer, relation)
            if ctx.grid.world > 1:
                why, size = broadcast_object((why, size), rank)
            if not why and not size:
                made_of, read = self.kept.made_of[relation], self.kept.read[relation]
                name, ranges = (
                    record_name(relation, made_of),
                    graph.located[relation.destination].ranges,
                )
                record = write_graph(ctx.exchange, writer, name, str(relation), csr, ranges, read)
                why, size = record.why, record.seal.size
                if not why:
                    facts.graph_written_bytes += size
                    if rank == 0:
                        self._sealing.append((relation, record, record.sealing()))
            if not why:
                facts.graph_bytes += size
            elif rank == 0:
                facts.warn(NOT_KEPT.format(relation=relation, why=why))

        self._keep_read(ctx, writer)

    def _replaces(
        self, ctx: RunContext, store: LayerStore, relation: Relation, record: Record
    ) -> bool:
        """Whether edges as they were read are sealed: not where those of the attempt are that has
        sealed the graphs. Others may be of a file as it was before it was written to."""
        (edge,) = (edge for edge in ctx.job.spec.input.edges if edge.relation == relation)
        ours = set(edge.relations).intersection(self.kept.made_of)
        graphs = {self._there.get(own, store.version) for own in ours}
        with suppress(Damaged, EmbertideError):
            there = store.sealed(record.seal.name)
            if there is not None and {there.version} == graphs:
                record.discard()
                return False
        with suppress(EmbertideError):
            store.drop(record.seal.name)
        return True

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
                self._there[relation] = seal.version
                return "", seal.size
        except EmbertideError as error:
            return str(error), 0
        sealed = self.kept.sealed.get(relation)
        if sealed is None or len(sealed.moved) > MOST_MOVED * sealed.count:
            return "", 0
        facts, record = ctx.graph_facts.kept, refer_to(writer, name, sealed.kept, sealed.moved)
        why = record.why or record.sealing().result()
        facts.graph_written_bytes += 0 if why else record.written
        return why, record.seal.size

    def _keep_read(self, ctx: RunContext, writer: Writer) -> None:
        """Keep the edges as they were read, or refer to those that an earlier run has kept.

        Collective: every rank must call.
        """
        facts, rank = ctx.graph_facts.kept, ctx.grid.rank
        for relation, record in self.kept.records.items():
            if why := record.agree():
                facts.warn(NOT_KEPT.format(relation=relation, why=why))
                continue
            facts.graph_bytes += record.seal.size
            facts.graph_written_bytes += record.written
            if rank == 0 and self._replaces(ctx, writer.store, relation, record):
                self._sealing.append((relation, record, record.sealing()))
        for relation, kept in self.kept.carried.items() if rank == 0 else ():
            if kept.store.key != writer.store.key:
                record = refer_to(writer, kept.seal.name, kept)
                self._sealing.append((relation, record, record.sealing()))
            facts.graph_bytes += kept.seal.size

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
