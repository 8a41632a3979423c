"""Keeps the graph of a run for the one that follows, beside the rows of its layers.

What was read back is not written again: its record refers to the blocks of the run that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from embertide.context import RunContext
from embertide.engine.pipeline.kept_graph import KeptGraph, record_name, sealed_graph
from embertide.engine.pipeline.typed_graph import TypedGraph
from embertide.engine.stages.kept_graph import refer_to, seal_graph, write_graph
from embertide.errors import EmbertideError
from embertide.graph.objects import broadcast_object
from embertide.grid import RowRanges
from embertide.io.versions.layers.attempts import Attempt
from embertide.io.versions.layers.seals import Damaged, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.csr import Csr
from embertide.spec.relations import Relation

NOT_KEPT = "the graph of {relation} is not kept for the next run: {why}"


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
        self._sealer = ThreadPoolExecutor(1, "seals")
        self._sealing: list[tuple[Relation, Seal, Future[str]]] = []
        self._mark: Attempt | None = None

    def close(self) -> None:
        """The run is over, or has failed."""
        self.kept.release()
        self._sealer.shutdown()
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
        if ctx.grid.rank == 0:
            # Until layers have theirs: what is written meanwhile may not be removed.
            mark = f"{store.version}-keeps"
            self._mark = Attempt(ctx.storage, store.output_uri, store.key, mark)
            self._mark.begin()
        for relation, csr in graph.sub_ranges.items():
            assert isinstance(csr, Csr)
            ranges = graph.located[relation.destination].ranges
            why, size = self._kept_already(ctx, store, relation)
            if not why and not size:
                why, size = self._write(ctx, store, relation, csr, ranges)
            if not why:
                ctx.graph_facts.kept.graph_bytes += size
            elif ctx.grid.rank == 0:
                ctx.graph_facts.kept.warn(NOT_KEPT.format(relation=relation, why=why))

    def _kept_already(
        self, ctx: RunContext, store: LayerStore, relation: Relation
    ) -> tuple[str, int]:
        """Why a graph cannot be kept, and its bytes where it need not be written."""
        answer: tuple[str, int] = ("", 0)
        if ctx.grid.rank == 0:
            answer = self._refer(ctx, store, relation)
        if ctx.grid.world > 1:
            answer = broadcast_object(answer, ctx.grid.rank)
        why, size = answer
        return why, size

    def _refer(self, ctx: RunContext, store: LayerStore, relation: Relation) -> tuple[str, int]:
        """What :meth:`_kept_already` gives, on rank 0."""
        made_of = self.kept.made_of[relation]
        try:
            try:
                seal = sealed_graph(ctx, store, relation, made_of)
            except Damaged:
                store.drop(record_name(relation, made_of))
                seal = None
            if seal is not None:
                return "", seal.size
        except EmbertideError as error:
            return str(error), 0
        sealed = self.kept.sealed.get(relation)
        if sealed is None:
            return "", 0
        own = refer_to(store, record_name(relation, made_of), sealed)
        return seal_graph(store, own), own.size

    def _write(
        self, ctx: RunContext, store: LayerStore, relation: Relation, csr: Csr, ranges: RowRanges
    ) -> tuple[str, int]:
        """Why a graph is not kept, and its bytes."""
        name, read = record_name(relation, self.kept.made_of[relation]), self.kept.read[relation]
        seal, why = write_graph(ctx.exchange, store, name, str(relation), csr, ranges, read)
        if not why:
            ctx.graph_facts.kept.graph_written_bytes += seal.size
            if ctx.grid.rank == 0:
                self._sealing.append((relation, seal, self._sealer.submit(seal_graph, store, seal)))
        return why, seal.size

    def finish(self, ctx: RunContext) -> None:
        """Wait until every graph that was written is sealed, or has failed."""
        facts = ctx.graph_facts.kept
        for relation, seal, sealing in self._sealing:
            if why := sealing.result():
                facts.graph_bytes -= seal.size
                facts.graph_written_bytes -= seal.size
                facts.warn(NOT_KEPT.format(relation=relation, why=why))
        self._sealing.clear()
        # Else the run would not sweep its own key.
        self._release()
