"""A device that is as late with its copies as it may be; ranks import it, so it stays light."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch

from embertide.kernels.lanes import Arriving, CpuLanes, Lane

T = TypeVar("T")


@dataclass
class _Late(Generic[T]):
    """Work that is done once it is waited for, or work that began after it."""

    queue: deque[_Late[Any]]
    work: Callable[[], T]
    done: list[T] = field(default_factory=list)

    def take(self) -> T:
        while not self.done:
            first = self.queue.popleft()
            first.done.append(first.work())
        return self.done.pop()


class LateLanes(CpuLanes):
    """Lanes whose work is done when it is waited for, in order.

    Args:
        late: those that are late; work on others is done at once. A real device may do either.
        values: the most that a tensor may have on the device, which has no memory for larger ones.

    Attributes:
        begun: how much work was begun on each lane.
        most: the most of it that was not waited for, on each lane.
    """

    def __init__(self, late: Collection[Lane], values: int | None = None) -> None:
        self._values = values
        self._queues: dict[Lane, deque[_Late[Any]]] = {"to device": deque(), "to host": deque()}
        self._late = late
        self.begun: dict[Lane, int] = dict.fromkeys(self._queues, 0)
        self.most: dict[Lane, int] = dict.fromkeys(self._queues, 0)

    def host(self, shape: tuple[int, ...]) -> torch.Tensor:
        """No value that nothing has written is one that could be right."""
        return torch.full(shape, math.nan)

    def free(self, tensor: torch.Tensor) -> None:
        """What is read from it from now on is wrong."""
        tensor.fill_(math.nan)

    def room(self, rows: int, width: int) -> torch.Tensor:
        """As of :meth:`host`.

        Raises:
            OutOfMemoryError: it would have too many values.
        """
        if self._values is not None and rows * width > self._values:
            raise torch.OutOfMemoryError(f"CUDA out of memory: {rows} x {width}")
        return torch.full((rows, width), math.nan)

    def beside(self, lane: Lane, work: Callable[[], T]) -> Arriving[T]:
        """Do it later, if the lane is late."""
        queue = self._queues[lane]
        late = _Late(queue, work)
        queue.append(late)
        self.begun[lane] += 1
        self.most[lane] = max(self.most[lane], len(queue))
        if lane not in self._late:
            late.done.append(late.take())
        return late

    def finish(self) -> None:
        """Do all of it."""
        for queue in self._queues.values():
            while queue:
                first = queue.popleft()
                first.done.append(first.work())
