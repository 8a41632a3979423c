"""Memory for a run's first large tensors, made ready while the workers' process imports.

How much can be of use is known before the run has been planned, how much fits into the plan after.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

import psutil

from embertide.footprint import FLOAT_BYTES
from embertide.kernels.stock import Stock, Stocked

if TYPE_CHECKING:
    from embertide.planning.inputs import Inputs

_MOST_BYTES = 5 << 28
"""For all workers: more would not be ready by the time they start."""
_LEAST_BYTES = 64 << 20
"""Features of a node type below this are not worth it."""
_SHARE = 4
"""Part of the free memory that may be taken before the run has been planned."""


class Stocking:
    """Memory for the workers of a run on this machine; it lasts as long as a ``with``."""

    def __init__(self) -> None:
        self._stock = Stock()
        self._features = 0

    def __enter__(self) -> Stocking:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stock.close()

    def begin(self, inputs: Inputs, workers: int) -> None:
        """Begin with as much as features, a layer's result of their size and a graph may take."""
        self._features = feature_bytes(inputs) // workers
        free = psutil.virtual_memory().available
        most = min(_MOST_BYTES, free // _SHARE) // workers
        self._stock.begin(workers, min(5 * self._features // 2, most))

    def end(self, planned: Mapping[str, int]) -> Stocked:
        """What is ready, so far as no stage takes more with it than the plan has.

        Args:
            planned: stage -> bytes of a worker. What is not in use while features are read is
                beyond what that stage takes; later stages take it.
        """
        return self._stock.stop(self._features + max(planned.values()) - planned["features"])


def feature_bytes(inputs: Inputs) -> int:
    """Of the features of large node types, in memory."""
    sizes = (FLOAT_BYTES * one.feature_rows * one.width for one in inputs.by_nodes.values())
    return sum(size for size in sizes if size >= _LEAST_BYTES)
