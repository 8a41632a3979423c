"""The one module that moves bytes between workers.

Every transfer goes through a :class:`Channel`: an axis of the grid, and the label under which
its bytes are counted. Transfers are point-to-point and asynchronous: starting them posts the
receives and sends and returns at once; ``wait`` blocks until the data has arrived. Messages
between two ranks are tagged with that pair's running number, so a pair never has to agree with
other ranks on how many transfers there are. Empty messages are not sent.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from embertide.grid import Axis, AxisName, Grid
from embertide.telemetry.recorder import Label, Recorder, computing

Transfer = tuple[int, torch.Tensor]
"""The other end, and what to send to it or where to receive from it (contiguous)."""


class Pending:
    """Transfers under way; keeps their buffers alive until :meth:`wait`."""

    def __init__(
        self, works: list[Any], buffers: list[torch.Tensor], recorder: Recorder, label: Label
    ) -> None:
        self._works = works
        self._buffers = buffers
        self._recorder = recorder
        self._label = label

    def wait(self) -> None:
        """Block until everything has been received and sent."""
        start = time.perf_counter()
        for work in self._works:
            work.wait()
        if self._works:
            self._recorder.waited(self._label, time.perf_counter() - start)
        self._works, self._buffers = [], []


class Exchange:
    """One rank's connections to the others, which counts what they carry.

    Args:
        grid: the grid as seen from this rank.
        device: where exchanged tensors live (``cpu`` with gloo, ``cuda`` with NCCL).
        recorder: receives every transfer.
    """

    def __init__(self, grid: Grid, device: torch.device, recorder: Recorder) -> None:
        self.grid = grid
        self.device = device
        self.recorder = recorder
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()

    def channel(self, axis: AxisName, primitive: str, layer: int = -1) -> Channel:
        """Transfers on an axis for one primitive; ``layer`` is -1 before the first layer."""
        return Channel(self, self.grid.axis(axis), Label(axis, primitive, layer))

    def post(
        self, label: Label, sends: Sequence[Transfer], receives: Sequence[Transfer]
    ) -> Pending:
        """Start transfers with global ranks; see :meth:`Channel.start`."""
        operations: list[dist.P2POp] = []
        for peer, tensor in receives:
            if tensor.numel():
                operations.append(self._operation(dist.irecv, tensor, peer, self._received))
                self.recorder.received(label, tensor.nbytes)
        for peer, tensor in sends:
            if tensor.numel():
                operations.append(self._operation(dist.isend, tensor, peer, self._sent))
                self.recorder.sent(label, tensor.nbytes)
        works = dist.batch_isend_irecv(operations) if operations else []
        buffers = [tensor for _, tensor in (*sends, *receives)]
        return Pending(works, buffers, self.recorder, label)

    @staticmethod
    def _operation(kind: Any, tensor: torch.Tensor, peer: int, numbers: Counter[int]) -> dist.P2POp:
        numbers[peer] += 1
        return dist.P2POp(kind, tensor, peer, tag=numbers[peer] % (1 << 30))

    def all_objects(self, value: Any) -> list[Any]:
        """All-gather one small Python object per rank, in rank order; not counted.

        Collective: every rank must call.
        """
        if self.grid.world == 1:
            return [value]
        result: list[Any] = [None] * self.grid.world
        dist.all_gather_object(result, value)
        return result

    def barrier(self) -> None:
        """Wait until every rank has reached this call. Collective: every rank must call."""
        self.all_objects(None)


@dataclass(frozen=True)
class Channel:
    """Transfers among the ranks of one axis, counted under one label.

    Peers are given by their index on the axis. The collectives must be called by every rank of
    that axis.
    """

    exchange: Exchange
    axis: Axis
    label: Label

    @property
    def grid(self) -> Grid:
        """The grid as seen from this rank."""
        return self.exchange.grid

    @property
    def device(self) -> torch.device:
        """Where exchanged tensors live."""
        return self.exchange.device

    def group(self, number: int) -> Channel:
        """The same channel, counted under a group of its own."""
        return replace(self, label=replace(self.label, group=number))

    def computing(self) -> AbstractContextManager[None]:
        """Count the body of a ``with`` as computing beside the channel's transfers."""
        return computing(self.exchange.recorder, self.label)

    def start(self, sends: Sequence[Transfer], receives: Sequence[Transfer]) -> Pending:
        """Start transfers; tensors must be contiguous and stay untouched until they are over.

        Both ends must know the sizes: an empty tensor is skipped on both.
        """
        ranks = self.axis.ranks
        return self.exchange.post(
            self.label,
            [(ranks[i], tensor) for i, tensor in sends],
            [(ranks[i], tensor) for i, tensor in receives],
        )

    def sizes(self, counts: torch.Tensor) -> torch.Tensor:
        """All-to-all of one row of ``counts`` [axis size, k] int64 per rank; rows received.

        Collective: every rank of the axis must call.
        """
        counts = counts.to(self.device)
        received = torch.empty_like(counts)
        received[self.axis.index] = counts[self.axis.index]
        others = self.axis.others()
        self.start([(i, counts[i]) for i in others], [(i, received[i]) for i in others]).wait()
        return received.cpu()

    def all_to_all(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Send tensor i to rank i of the axis; returns what each rank sent, in axis order.

        Lengths may differ; dtype and trailing dimensions are those of the tensor that a rank
        keeps for itself, which is passed through without a copy.
        Collective: every rank of the axis must call.
        """
        lengths = torch.tensor([[len(tensor)] for tensor in tensors], dtype=torch.int64)
        incoming = self.sizes(lengths)[:, 0].tolist()
        own = self.axis.index
        kept = tensors[own]
        received = [
            kept if i == own else kept.new_empty((incoming[i], *kept.shape[1:]))
            for i in range(self.axis.size)
        ]
        others = self.axis.others()
        self.start(
            [(i, tensors[i].contiguous()) for i in others], [(i, received[i]) for i in others]
        ).wait()
        return received

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's ``tensor`` (lengths may differ), in axis order.

        Collective: every rank of the axis must call.
        """
        return self.all_to_all([tensor] * self.axis.size)

    def all_reduce(self, values: torch.Tensor) -> torch.Tensor:
        """Sum over the axis, on every rank of it, on the CPU; for small tensors.

        Collective: every rank of the axis must call.
        """
        gathered = self.all_gather(values.to(self.device).reshape(1, -1))
        return torch.cat(gathered).sum(0).reshape(values.shape).cpu()
