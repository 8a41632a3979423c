"""Layers that are kept for the next attempt, and the one that this attempt goes on after.

A layer's tensors are written by threads while the next layer is computed. They are neither changed
nor freed before they are written, so that no copy is needed: what would do so waits. Once the first
operation of the next layer is over, all workers exchange what they have written, and a thread of
rank 0 seals the layer by one object, after it has waited for the disk. Whatever fails here is a
warning, and the run goes on without. Of a tensor of which an earlier run has kept most rows only
the others are written (:mod:`embertide.io.versions.layers.writing`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from embertide.engine.stages.infer.excerpt import Excerpt
from embertide.engine.stages.infer.loop import Engine, Placement
from embertide.engine.stages.infer.moved import Beside
from embertide.engine.stages.infer.overlay import Overlay
from embertide.engine.stages.infer.restoring import find_layer, restore
from embertide.facts.telemetry.progress import Progress
from embertide.io.versions.layers import seals
from embertide.io.versions.layers.seals import KeptTensor, Seal
from embertide.io.versions.layers.store import LayerStore, Values
from embertide.io.versions.layers.writing import EarlierRows, Record, Writer
from embertide.layouts import Layout, Shard
from embertide.program.plans.boundaries import Boundary, boundaries, boundary_digest, results_of
from embertide.program.plans.places import as_array, place_of

DIFFERS = "rows that were computed a second time differ"
NOT_KEPT = "layer {layer} is not kept for a next attempt, nor are those after it: {why}"


@dataclass(frozen=True)
class Keeping:
    """What a run keeps of its layers, and where.

    Attributes:
        layers: numbers of those to keep, from 1.
        begins: called by rank 0 before anything is read or written.
        touched: says what of the inputs was written to since an attempt began, "" for nothing.
        results: keep the results too, for a run that computes what has changed by then.
        reads: go on after what an earlier attempt has kept.
        how: a digest of how rows are computed.
    """

    store: LayerStore
    layers: Collection[int]
    begins: Callable[[], None] = lambda: None
    touched: Callable[[str], str] = lambda _version: ""
    results: bool = False
    reads: bool = True
    how: str = ""


class LayerKeeper:
    """Keeps the layers of one execution.

    Args:
        placement: where its tensors are.
        basis: what its rows rest on, where these may differ from a full run's.
    """

    def __init__(
        self,
        engine: Engine,
        placement: Placement,
        keeping: Keeping,
        basis: str = "",
    ) -> None:
        self._placement = placement
        self._ctx, self._execution, self._plan = engine.ctx, engine.whole, engine.plan
        self._keeping, self._checker, self._basis = keeping, engine.checker, basis
        self._known = [(end, self._name(end)) for end in boundaries(self._plan)]
        self._facts, exchange = engine.ctx.graph_facts.kept, engine.ctx.exchange
        rank, warn = exchange.grid.rank, self._facts.warn
        self._writer = Writer(keeping.store, rank, exchange.all_objects, warn)
        self._record: Record | None = None
        self._sealing: list[tuple[Record, Future[str]]] = []
        self._sealed: list[Record] = []
        self._off = False
        self._earlier: dict[str, EarlierRows] = {}
        self._over: Mapping[str, Overlay] = {}
        self._beside: dict[tuple[str, seals.Beside], Beside] = {}

    def _name(self, end: Boundary) -> str:
        return boundary_digest(self._plan, end, self._ctx.job.spec.inference.rows, self._basis)

    def goes_on_from(
        self,
        earlier: Mapping[str, EarlierRows],
        tensors: Mapping[str, Overlay],
        beside: Mapping[tuple[str, seals.Beside], Beside],
    ) -> None:
        """Tensors of which an earlier run has kept most rows, and what is kept beside those of the
        layer that ends.

        Args:
            tensors: those over rows that were kept, which later operations read.
        """
        self._earlier |= earlier
        self._over = tensors
        self._beside = dict(beside)

    def start_again(self) -> None:
        """What this attempt has kept is not believed any more, and all rows are computed.

        Collective: every rank must call.
        """
        if self._record is not None:
            self._record.wait()
            self._record = None
            self._execution.tensors.hold({})
        self._take_back()
        self._earlier.clear()
        self._over = {}
        self._beside.clear()
        self._basis = ""
        self._known = [(end, self._name(end)) for end in boundaries(self._plan)]
        self._ctx.exchange.barrier()

    def _take_back(self) -> None:
        """Remove the layers that this attempt has kept."""
        self._finish()
        for record in self._sealed:
            record.take_back()
        self._sealed.clear()
        self._facts.kept.clear()
        self._facts.kept_bytes, self._facts.written_bytes = 0, None

    def resume(self) -> int:
        """The first operation to run, with the tensors that those before it have made.

        Collective: every rank must call.
        """
        for boundary, seal in self.sealed():
            if (shards := self.restore(seal)) is not None:
                self._placement.go_on(boundary.at, shards)
                self.goes_on(boundary, seal)
                return boundary.at
        return 0

    def sealed(self) -> Iterator[tuple[Boundary, Seal]]:
        """Layers that an earlier attempt has kept, the last first: the next where one is damaged.

        Collective: every rank must call.
        """
        ctx, keeping = self._ctx, self._keeping
        known = {name: boundary for boundary, name in self._known if keeping.reads}
        while known and (seal := find_layer(ctx, keeping.store, list(known), keeping.touched)):
            if ctx.grid.rank == 0:
                keeping.begins()
            yield known.pop(seal.name), seal

    def restore(self, seal: Seal, excerpt: Excerpt | None = None) -> dict[str, Shard] | None:
        """See :func:`restoring.restore`."""
        store, placement = self._keeping.store, self._placement
        return restore(self._ctx, self._execution, placement, store, seal, excerpt)

    def goes_on(self, boundary: Boundary, seal: Seal) -> None:
        """What is computed begins after a kept layer, whose tensors are there."""
        program, layer = self._plan.program, boundary.layer
        steps = sum(len(op.steps) for op in self._plan.ops[: boundary.at])
        # As the grid that kept them has made them.
        self._execution.scaled.difference_update(of.name for of in seal.tensors)
        self._execution.scaled.update(of.name for of in seal.tensors if of.scaled)
        self._known = [(end, name) for end, name in self._known if end.at > boundary.at]
        facts = self._facts
        facts.version, facts.resumed, facts.layers = seal.version, layer, program.layers
        done, (message, *_) = steps / len(program.steps), facts.sentences
        self._ctx.report(Progress("infer", layer + 1, program.layers, done, message=message))

    def before(self, at: int) -> None:
        """An operation begins: if a layer to keep is over, begin to write it."""
        due = [(b, name) for b, name in self._known if b.at == at]
        if self._off or not due:
            return
        ((boundary, name),) = due
        if boundary.layer in self._keeping.layers:
            if self._ctx.grid.rank == 0:
                self._keeping.begins()
            self._begin(boundary, name, {})
            self._execution.tensors.hold(dict.fromkeys(boundary.tensors, self._settle))

    def keep_results(self, results: Mapping[str, Shard]) -> None:
        """All is computed: keep the results, if the run does. Collective: every rank must call.

        Args:
            results: tensor -> our shard in ``rows``.
        """
        if self._off or not self._keeping.results:
            return
        end = results_of(self._plan)
        self._begin(end, self._name(end), results)
        self.after()

    def _begin(self, boundary: Boundary, name: str, shards: Mapping[str, Shard]) -> None:
        """Begin to write our shards of a layer's tensors.

        Args:
            shards: those that are not where they were made.
        """
        grid, layers = self._execution.grid, self._plan.program.layers
        self._record = record = self._writer.begin(
            name, layer=boundary.layer, layers=layers, feature=grid.feature, how=self._keeping.how
        )
        if self._checker is not None and self._checker.beyond:
            # A next attempt would not compute these rows again, so nor would it notice.
            record.why = DIFFERS
        for of in boundary.tensors:
            if (over := self._over.get(of)) is not None and of not in shards:
                self._put(record, of, over.layout, over.dtype, over)
                continue
            shard = shards[of] if of in shards else self._placement.to_keep(of)
            values = self._placement.values(shard)
            self._put(record, of, shard.layout, shard.data.dtype, values)

    def _put(
        self, record: Record, name: str, layout: Layout, dtype: torch.dtype, values: Values
    ) -> None:
        """Begin to write our rows and columns of a tensor."""
        execution = self._execution
        (first, last), (left, right) = place_of(execution, name, layout)
        if tuple(values.shape) != (last - first, right - left):
            record.why = f"{name} is not cut into the columns of the grid's slices"
        tensor = KeptTensor(
            name=name,
            rows=execution.ranges_of(name).nodes,
            width=execution.program.widths[name],
            dtype=str(dtype).removeprefix("torch."),
            layout=layout,
            scaled=name in execution.scaled,
            blocks=(),
        )
        beside = (
            (kind, (own.rows + first).numpy(), as_array(own.values))
            for (of, kind), own in self._beside.items()
            if of == name
        )
        record.put(tensor, values, first, left, self._earlier.get(name), beside)

    def _settle(self) -> None:
        """Wait until what is under way is written."""
        if self._record is not None:
            start = time.perf_counter()
            self._record.wait()
            self._facts.wait_seconds += time.perf_counter() - start

    def after(self) -> None:
        """An operation is over: seal the layer that was under way. Collective: every rank must
        call."""
        record, facts = self._record, self._facts
        if record is None:
            return
        self._settle()
        self._record = None
        self._execution.tensors.hold({})
        if why := record.agree():
            self._off = True
            if self._ctx.grid.rank == 0:
                facts.warn(NOT_KEPT.format(layer=record.seal.layer, why=why))
            if self._keeping.results:
                # No run goes on from some layers of a version, and what is short is room.
                self._ctx.graph_facts.refresh.keeps = None
                self._take_back()
            return
        facts.keeps(record.seal.layer, record.seal.size, record.written)
        facts.layers = self._plan.program.layers
        if self._ctx.grid.rank == 0:
            self._sealing.append((record, record.sealing()))

    def _finish(self) -> None:
        """Wait until every layer that was to be sealed is, or has failed."""
        start, facts = time.perf_counter(), self._facts
        for record, sealing in self._sealing:
            if why := sealing.result():
                facts.lost(record.seal.layer, record.seal.size, record.written)
                facts.warn(NOT_KEPT.format(layer=record.seal.layer, why=why))
            self._sealed.append(record)
        if self._sealing:
            facts.wait_seconds += time.perf_counter() - start
        self._sealing.clear()

    def close(self) -> None:
        """No layer is kept any more; those whose blocks are written are sealed."""
        try:
            self._finish()
        finally:
            self._writer.close()
