"""Messages through the process group: gloo's sockets for CPU tensors, NCCL for CUDA's.

NCCL runs what one call posts as one group, and a rank's groups one after the other; a group ends
when both ends of all its messages have come to it. So both ends of a message are posted by the same
call of the program, and all ranks go through the calls in the same order: then there is always a
group that can end (``tests/distributed/test_order_of_calls.py`` holds every kind of step to it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

Transfer = tuple[int, torch.Tensor]
"""The other end, and what to send to it or where to receive from it (contiguous)."""

_TAGS = 1 << 30


class Network:
    """This rank's end of the process group; tags are a pair's running numbers."""

    def __init__(self) -> None:
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()

    def post(
        self, sends: Sequence[Transfer], receives: Sequence[Transfer]
    ) -> tuple[list[Any], list[Any]]:
        """Start transfers; returns what to ``wait()`` for, of the sends and of the receives."""
        operations = [self._operation(dist.irecv, *end, self._received) for end in receives]
        operations += [self._operation(dist.isend, *end, self._sent) for end in sends]
        works = dist.batch_isend_irecv(operations) if operations else []
        if len(works) < len(operations):
            return works, works  # NCCL has one for all of them.
        return works[len(receives) :], works[: len(receives)]

    @staticmethod
    def _operation(kind: Any, peer: int, tensor: torch.Tensor, numbers: Counter[int]) -> dist.P2POp:
        numbers[peer] += 1
        return dist.P2POp(kind, tensor, peer, tag=numbers[peer] % _TAGS)
