"""Layers whose blocks are written are sealed by a thread of rank 0, which waits for the disk."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from embertide.engine.stages.infer.writing import bytes_of
from embertide.errors import EmbertideError
from embertide.facts.telemetry.kept import KeptFacts
from embertide.io.versions.layers.seals import Block, Seal
from embertide.io.versions.layers.store import LayerStore

NOT_KEPT = "layer {layer} is not kept for a next attempt, nor are those after it: {why}"


class LayerSealer:
    """Seals layers in the order in which they are written.

    Args:
        facts: where it is noted what is not kept after all, and how long the run has waited.
    """

    def __init__(self, store: LayerStore, facts: KeptFacts) -> None:
        self._store, self._facts = store, facts
        self._pool = ThreadPoolExecutor(1, "seals")
        self._sealing: list[Future[None]] = []
        self._begun: list[tuple[str, list[tuple[Block, ...]]]] = []

    def begin(self, seal: Seal, parts: list[tuple[Block, ...]]) -> None:
        """Seal a layer soon.

        Args:
            parts: the blocks of each tensor that were written for it.
        """
        self._begun.append((seal.name, parts))
        self._sealing.append(self._pool.submit(self._seal, seal, parts))

    def _seal(self, seal: Seal, parts: list[tuple[Block, ...]]) -> None:
        """Runs in the thread."""
        try:
            if not self._store.seal(seal):
                self.discard(parts)
        except EmbertideError as error:
            written = bytes_of(seal.tensors, parts)
            self._facts.lost(seal.layer, seal.size, written)
            self._facts.warn(NOT_KEPT.format(layer=seal.layer, why=error))

    def finish(self) -> None:
        """Wait until every layer that was to be sealed is, or has failed."""
        start = time.perf_counter()
        for sealing in self._sealing:
            sealing.result()
        if self._sealing:
            self._facts.wait_seconds += time.perf_counter() - start
        self._sealing.clear()

    def take_back(self) -> None:
        """Remove every layer that was sealed."""
        self.finish()
        for name, parts in self._begun:
            self._store.drop(name)
            self.discard(parts)
        self._begun.clear()

    def discard(self, parts: list[tuple[Block, ...]]) -> None:
        """Remove what was written in vain."""
        try:
            self._store.remove([block for blocks in parts for block in blocks])
        except EmbertideError as error:
            self._facts.warn(f"blocks of a layer that is not kept stay for 24 hours: {error}")

    def close(self) -> None:
        """No layer is sealed any more."""
        self._pool.shutdown()
