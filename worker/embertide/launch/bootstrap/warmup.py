"""Memory for a run's first large tensors, made ready while the workers' process imports.

How much can be of use is known before the run has been planned, how much fits into the plan after.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from embertide.footprint import FLOAT_BYTES
from embertide.io.readers.pool import are_remote
from embertide.kernels.prefault import Prefault, Prefaulted

if TYPE_CHECKING:
    from embertide.engine.planning.inputs import Inputs

_MOST_BYTES = 3 << 30
"""For all workers: as much is sometimes ready by the time they start, often less."""
_LEAST_BYTES = 64 << 20
"""Features of a node type below this are not worth it."""
_EDGE_BYTES = 24
"""Memory of an edge: its ids as they are read, and twice while it is sorted."""
_GROUP = Path("/sys/fs/cgroup")
"""Where a container sees its own limits."""
_SHARE = 4
"""Part of the free memory that may be taken before the run has been planned."""


class Warmup:
    """Memory for the workers of a run on this machine, until it is closed."""

    def __init__(self) -> None:
        self._prefault = Prefault()
        self._features = 0
        self._rounds = False

    def begin(self, inputs: Inputs, workers: int, *, hashed: bool) -> None:
        """Begin with what features, a layer's result of their size and the graph may take.

        For remote inputs nothing is begun: pages would idle while those are read.

        Args:
            hashed: ids are ``int64`` or ``string``, which several workers look up in rounds.
        """
        if are_remote([*inputs.features, *inputs.edges]):
            return
        self._features = feature_bytes(inputs) // workers
        self._rounds = hashed and workers > 1
        most = min(_MOST_BYTES, free_bytes() // _SHARE) // workers
        wanted = 2 * self._features + edge_bytes(inputs) // workers
        self._prefault.begin(workers, min(wanted, most) if wanted >= _LEAST_BYTES else 0)

    def end(self, planned: Mapping[str, int]) -> Prefaulted:
        """What is ready, so far as no stage takes more with it than the plan has.

        Args:
            planned: stage -> bytes of a worker. What is not in use while features are read is
                beyond what that stage takes; later stages take it, rounds of look-ups excepted.
        """
        first = max(planned["features"], planned["ingest"] if self._rounds else 0)
        return self._prefault.stop(self._features + max(planned.values()) - first)

    def close(self) -> None:
        """End filling, and leave the memory to the workers that took it."""
        self._prefault.close()


def free_bytes(group: Path = _GROUP) -> int:
    """Memory that is free on this machine, and in this container where it has a limit."""
    free = int(psutil.virtual_memory().available)
    # There is no such file without a container, and "max" where there is no limit.
    with suppress(OSError, ValueError):
        limit = int((group / "memory.max").read_text())
        free = min(free, max(0, limit - int((group / "memory.current").read_text())))
    return free


def edge_bytes(inputs: Inputs) -> int:
    """Memory of edges as they are read and sorted; of text the bytes, which are about as many."""
    found = 0
    for split in inputs.edges:
        is_text = split.row_groups is None and split.size == split.stop - split.start
        found += split.rows * (1 if is_text else _EDGE_BYTES)
    return found


def feature_bytes(inputs: Inputs) -> int:
    """Memory of the features of large node types."""
    sizes = (FLOAT_BYTES * one.feature_rows * one.width for one in inputs.by_nodes.values())
    return sum(size for size in sizes if size >= _LEAST_BYTES)
