"""Layers that are kept for the next attempt, and the one that this attempt goes on after.

A layer's tensors are written by threads while the next layer is computed. They are neither changed
nor freed before they are written, so that no copy is needed: what would do so waits. Once the first
operation of the next layer is over, all workers exchange what they have written, and a thread of
rank 0 seals the layer by one object, after it has waited for the disk. Whatever fails here is a
warning, and the run goes on without. Of a tensor of which an earlier run has kept most rows only
the others are written (:mod:`embertide.io.versions.layers.patches`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

from embertide.engine.stages.infer.loop import Engine
from embertide.engine.stages.infer.moved import Beside
from embertide.engine.stages.infer.restoring import (
    Restored,
    contiguous,
    find_layer,
    place_of,
    restore,
    shape_of,
)
from embertide.engine.stages.infer.sealing import NOT_KEPT, LayerSealer
from embertide.engine.stages.infer.writing import Writing, bytes_of
from embertide.facts.telemetry.progress import Progress
from embertide.io.versions.layers import seals
from embertide.io.versions.layers.patches import EarlierRows, Part, plan_patch
from embertide.io.versions.layers.seals import Block, Damaged, KeptTensor, Seal, block_of
from embertide.io.versions.layers.store import Array, LayerStore, Range
from embertide.layouts import Shard
from embertide.program.plans.boundaries import Boundary, boundaries, boundary_digest, results_of

DIFFERS = "rows that were computed a second time differ"
_WRITERS = 2


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
        basis: what its rows rest on, where these may differ from a full run's.
    """

    def __init__(
        self,
        engine: Engine,
        keeping: Keeping,
        basis: str = "",
    ) -> None:
        self._ctx, self._execution, self._plan = engine.ctx, engine.whole, engine.plan
        self._keeping, self._checker, self._basis = keeping, engine.checker, basis
        self._known = [(end, self._name(end)) for end in boundaries(self._plan)]
        self._facts = engine.ctx.graph_facts.kept
        self._pool = ThreadPoolExecutor(_WRITERS, "layers")
        self._sealer = LayerSealer(keeping.store, self._facts)
        self._writing: Writing | None = None
        self._off = False
        self._earlier: dict[str, EarlierRows] = {}
        self._beside: dict[tuple[str, seals.Beside], Beside] = {}

    def _name(self, end: Boundary) -> str:
        return boundary_digest(self._plan, end, self._ctx.job.spec.inference.rows, self._basis)

    def goes_on_from(
        self,
        earlier: Mapping[str, EarlierRows],
        beside: Mapping[tuple[str, seals.Beside], Beside],
    ) -> None:
        """Tensors of which an earlier run has kept most rows, and what is kept beside those of the
        layer that ends."""
        self._earlier |= earlier
        self._beside = dict(beside)

    def start_again(self) -> None:
        """What this attempt has kept is not believed any more, and all rows are computed.

        Collective: every rank must call.
        """
        if self._writing is not None:
            self._writing.wait()
            self._writing = None
            self._execution.tensors.hold({})
        self._take_back()
        self._earlier.clear()
        self._beside.clear()
        self._basis = ""
        self._known = [(end, self._name(end)) for end in boundaries(self._plan)]
        self._ctx.exchange.barrier()

    def _take_back(self) -> None:
        """Remove the layers that this attempt has kept."""
        self._sealer.take_back()
        self._facts.kept.clear()
        self._facts.kept_bytes, self._facts.written_bytes = 0, None

    def resume(self) -> int:
        """The first operation to run, with the tensors that those before it have made.

        Collective: every rank must call.
        """
        ctx, keeping = self._ctx, self._keeping
        if not keeping.reads:
            return 0
        known = {name: boundary for boundary, name in self._known}
        while seal := find_layer(ctx, keeping.store, list(known), keeping.touched):
            if ctx.grid.rank == 0:
                keeping.begins()
            boundary = known.pop(seal.name)
            restored = restore(ctx, self._execution, keeping.store, seal)
            if restored is not None:
                self._go_on(boundary, restored)
                self._facts.version = seal.version
                return boundary.at
        return 0

    def _go_on(self, boundary: Boundary, restored: Restored) -> None:
        """With the tensors of a kept layer."""
        program, layer = self._plan.program, boundary.layer
        steps = sum(len(op.steps) for op in self._plan.ops[: boundary.at])
        frees = {name for op in self._plan.ops[: boundary.at] for name in op.frees}
        self._execution.tensors.restore(restored.shards, frees)
        # As the grid that kept them has made them.
        self._execution.scaled.difference_update(restored.shards)
        self._execution.scaled.update(restored.scaled)
        self._known = [(end, name) for end, name in self._known if end.at > boundary.at]
        facts = self._facts
        facts.resumed, facts.layers = layer, program.layers
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
            tensors = self._execution.tensors
            self._begin(boundary, name, {of: tensors.to_keep(of) for of in boundary.tensors})
            tensors.hold(dict.fromkeys(boundary.tensors, self._settle))

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
        """Begin to write our shards of a layer's tensors."""
        self._writing = writing = Writing(boundary, name)
        if self._checker is not None and self._checker.beyond:
            # A next attempt would not compute these rows again, so nor would it notice.
            writing.why = DIFFERS
        for of in boundary.tensors:
            self._write(writing, of, shards[of])

    def _write(self, writing: Writing, name: str, shard: Shard) -> None:
        """Begin to write our shard of a tensor."""
        execution = self._execution
        place = place_of(execution, name, shard.layout)
        if tuple(shard.data.shape) != shape_of(place):
            writing.why = f"{name} is not cut into the columns of the grid's slices"
        tensor = KeptTensor(
            name=name,
            rows=execution.ranges_of(name).nodes,
            width=shard.width,
            dtype=str(shard.data.dtype).removeprefix("torch."),
            layout=shard.layout,
            scaled=name in execution.scaled,
            blocks=(),
        )
        values = contiguous(execution.exchange.staging.download(shard.data))
        try:
            tensor, parts = self._parts(writing, tensor, values, place)
        except Damaged as error:
            writing.why, parts = str(error), iter(())
        parts = chain(parts, self._parts_beside(writing, tensor.name, place))
        writing.blocks.append([self._pool.submit(self._keeping.store.write, *p) for p in parts])
        writing.tensors.append(tensor)

    def _parts(
        self, writing: Writing, tensor: KeptTensor, values: Array, place: tuple[Range, Range]
    ) -> tuple[KeptTensor, Iterator[tuple[Part, Block]]]:
        """A tensor with what it refers to of an earlier run's, and what we write of it.

        Raises:
            Damaged: an earlier patch, which is written again with this one, cannot be read.
        """
        store, rank, number = self._keeping.store, self._execution.grid.rank, len(writing.tensors)
        (first, last), (left, _) = place
        earlier = self._earlier.get(tensor.name)
        plan = None if earlier is None else plan_patch(tensor, earlier)
        if earlier is None or plan is None:
            return tensor, store.blocks(writing.name, number, rank, values, first, left)
        moved = earlier.moved[first:last]
        parts = store.patch(writing.name, number, rank, values, (first, left), moved, plan)
        return plan.tensor, parts

    def _parts_beside(
        self, writing: Writing, name: str, place: tuple[Range, Range]
    ) -> Iterator[tuple[Part, Block]]:
        """What we write beside a tensor."""
        (first, _), (left, _) = place
        names = writing.name, len(writing.tensors), self._execution.grid.rank
        for (of, kind), beside in self._beside.items():
            if of == name:
                ids, values = (beside.rows + first).numpy(), contiguous(beside.values)
                yield from self._keeping.store.beside(*names, values, ids, left, kind)

    def _settle(self) -> None:
        """Wait until what is under way is written."""
        if self._writing is not None:
            start = time.perf_counter()
            self._writing.wait()
            self._facts.wait_seconds += time.perf_counter() - start

    def after(self) -> None:
        """An operation is over: seal the layer that was under way. Collective: every rank must
        call."""
        writing = self._writing
        if writing is None:
            return
        self._settle()
        self._writing = None
        self._execution.tensors.hold({})
        gathered = self._ctx.exchange.all_objects(writing.result())
        problems = [why for why, _ in gathered if why]
        parts = [
            tuple(block_of(block) for _, blocks in gathered for block in blocks[number])
            for number in range(len(writing.tensors))
        ]
        if not problems:
            self._sealed(writing, parts)
            return
        self._off = True
        if self._ctx.grid.rank == 0:
            self._facts.warn(NOT_KEPT.format(layer=writing.boundary.layer, why=problems[0]))
            self._sealer.discard(parts)
        if self._keeping.results:
            # No run goes on from some layers of a version, and what is short is room.
            self._ctx.graph_facts.refresh.keeps = None
            self._take_back()

    def _sealed(self, writing: Writing, parts: list[tuple[Block, ...]]) -> None:
        """All is written: a thread of rank 0 seals the layer."""
        tensors, written = writing.complete(parts), bytes_of(writing.tensors, parts)
        boundary, store = writing.boundary, self._keeping.store
        facts = self._facts
        facts.keeps(boundary.layer, sum(tensor.size for tensor in tensors), written)
        facts.layers = self._plan.program.layers
        if self._ctx.grid.rank > 0:
            return
        seal = Seal(
            key=store.key,
            name=writing.name,
            version=store.version,
            layer=boundary.layer,
            layers=self._plan.program.layers,
            feature=self._execution.grid.feature,
            how=self._keeping.how,
            tensors=tensors,
        )
        self._sealer.begin(seal, parts)

    def close(self) -> None:
        """No layer is kept any more; those whose blocks are written are sealed."""
        try:
            self._sealer.finish()
        finally:
            self._pool.shutdown(cancel_futures=True)
            self._sealer.close()
