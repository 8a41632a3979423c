"""Some edges by the dense ids of both ends: in memory, or on disk until they are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt


@dataclass
class EdgeChunk:
    """Some edges with dense ids.

    Sources and destinations [e]; weights [e] and features [e, K] are float32, or None.
    """

    source: npt.NDArray[np.integer]
    destination: npt.NDArray[np.integer]
    weight: npt.NDArray[np.float32] | None
    features: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def load(self) -> EdgeChunk:
        """The edges, which are in memory already."""
        return self

    def turned(self) -> EdgeChunk:
        """The same edges the other way round, which share their memory."""
        return EdgeChunk(self.destination, self.source, self.weight, self.features)

    def part(self, which: slice | npt.NDArray[np.bool_]) -> EdgeChunk:
        """Some of the edges; those of a slice share memory."""
        weight = None if self.weight is None else self.weight[which]
        features = None if self.features is None else self.features[which]
        return EdgeChunk(self.source[which], self.destination[which], weight, features)


class StoredChunk(Protocol):
    """Some edges that may be on disk; an :class:`EdgeChunk` is one."""

    @property
    def destination(self) -> npt.NDArray[np.integer]:
        """[e] dense ids."""

    def __len__(self) -> int: ...

    def load(self) -> EdgeChunk:
        """The edges, in memory."""

    def turned(self) -> StoredChunk:
        """The same edges the other way round, which are stored once."""
