"""The one module that moves bytes between workers.

Every transfer goes through a :class:`Channel`: an axis of the grid, and the label under which
its bytes are counted. Transfers are point-to-point and asynchronous: starting them posts the
receives and sends and returns at once; ``wait`` blocks until the data has arrived. Messages
between two ranks arrive in the order in which they were posted, so a pair never has to agree with
other ranks on how many transfers there are. Empty messages are not sent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from embertide.facts.telemetry.memory import count_shared
from embertide.facts.telemetry.recorder import Label, Recorder, RelationLabels, computing
from embertide.graph.merging import Merging
from embertide.graph.objects import gather_objects
from embertide.graph.transports.direct import Link
from embertide.graph.transports.meeting import meet
from embertide.graph.transports.network import Network, Transfer
from embertide.grid import Axis, AxisName, Grid
from embertide.kernels import memory
from embertide.kernels.memory import empty_as
from embertide.kernels.staging import Staging
from embertide.spec.grid import GridShape

_TIMEOUT_SECONDS = 1800.0


class Exchange:
    """One rank's connections to the others, which counts what they carry.

    CPU tensors go straight to peers of the same host where that works, everything else through
    the process group. Collective: every rank must make one.

    Args:
        grid: the grid as seen from this rank.
        device: where the layers' tensors live (``cpu``; ``cuda`` with NCCL). What is made and read
            on the CPU, such as ids and counts, travels from there with either.
        recorder: receives every transfer, whichever way it goes.
        timeout: seconds after which a silent peer of this host counts as lost.
        direct: whether peers of the same host may be read directly.
        in_place: whether their tensors may also be read where they stand.

    Attributes:
        links: rank -> our link to a peer of this host.
        near: rank -> the peers whose memory it maps, and which map its own.
        merging: how many groups of rows travel in one message.
        network: carries what goes to all other peers.
        staging: copies what is made on the CPU to the device, and back.
    """

    def __init__(
        self,
        grid: Grid,
        device: torch.device,
        recorder: Recorder,
        timeout: float = _TIMEOUT_SECONDS,
        *,
        direct: bool = True,
        in_place: bool = True,
    ) -> None:
        self.grid = grid
        self.device = device
        self.recorder = recorder
        self.links: dict[int, Link] = {}
        self.near: list[list[int]] = [[] for _ in range(grid.world)]
        self.merging = Merging()
        self._relations = RelationLabels()
        self.network = Network()
        self.staging = Staging(device)
        if direct and grid.world > 1 and device.type == "cpu":
            self.links = meet(grid.rank, self.all_objects, timeout)
            if in_place:
                self._share()

    def _share(self) -> None:
        """Let peers map our large tensors. Collective: every rank must call."""
        mapped = [peer for peer, link in self.links.items() if link.file is not None]
        self.near = self.all_objects(mapped)
        file = memory.shared_file()
        if mapped and file is not None:
            memory.share()
            count_shared(file)

    def whole_rows(self) -> Exchange:
        """The same ranks as partitions of a grid with one slice."""
        view = copy(self)
        view.grid = Grid(GridShape.of(self.grid.world, 1), self.grid.rank)
        return view

    def channel(
        self, axis: AxisName, primitive: str, layer: int = -1, relations: Sequence[str] = ("",)
    ) -> Channel:
        """Transfers on an axis for one primitive; ``layer`` is -1 before the first layer.

        Args:
            relations: that the transfers are for; "" where none is known.
        """
        relation = self._relations.of(*relations)
        return Channel(self, self.grid.axis(axis), Label(axis, primitive, layer, 0, relation))

    def post(
        self, label: Label, sends: Sequence[Transfer], receives: Sequence[Transfer]
    ) -> Pending:
        """Start transfers with global ranks; see :meth:`Channel.start`."""
        sends = [end for end in sends if end[1].numel()]
        receives = [end for end in receives if end[1].numel()]
        if receives:
            self.recorder.received(label, sum(tensor.nbytes for _, tensor in receives))
        for _, tensor in sends:
            self.recorder.sent(label, tensor.nbytes)
        sent, received = self.network.post(
            [end for end in sends if end[0] not in self.links],
            [end for end in receives if end[0] not in self.links],
        )
        # First those that travel only while they are waited for.
        received = [
            *(self.links[peer].receive(data) for peer, data in receives if peer in self.links),
            *received,
        ]
        sent = [*(self.links[peer].send(data) for peer, data in sends if peer in self.links), *sent]
        buffers = [tensor for _, tensor in (*sends, *receives)]
        return Pending(sent, received, buffers, self.recorder, label)

    def all_objects(self, value: Any) -> list[Any]:
        """All-gather one small object per rank, in rank order; not counted.

        It travels as JSON, so tuples of others arrive as lists. Collective: every rank must call.

        Raises:
            WorkerFailed: a peer sent something else.
        """
        if self.grid.world == 1:
            return [value]
        start = time.perf_counter()
        result = gather_objects(value, self.grid.rank, self.grid.world)
        self.recorder.met(time.perf_counter() - start)
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
        """Where the layers' tensors live."""
        return self.exchange.device

    @property
    def staging(self) -> Staging:
        """Copies what is made on the CPU to the device, and back."""
        return self.exchange.staging

    def group(self, number: int) -> Channel:
        """The same channel, counted under a group of its own."""
        return replace(self, label=replace(self.label, group=number))

    def counted_as(self, primitive: str) -> Channel:
        """The same channel, counted under another primitive, outside its groups."""
        return replace(self, label=replace(self.label, primitive=primitive, group=0))

    @property
    def in_place(self) -> bool:
        """Whether all ranks of the axis read each other's tensors where they stand."""
        ranks, near = self.axis.ranks, self.exchange.near
        return len(ranks) > 1 and all(b in near[a] for a in ranks for b in ranks if a != b)

    def links(self) -> dict[int, Link]:
        """Axis index -> our link to that peer, where it is on this host."""
        links = self.exchange.links
        return {i: links[self.axis.ranks[i]] for i in self.axis.others()}

    def read_in_place(self, size: int) -> None:
        """Count bytes of peers' memory that we read where they stand."""
        if size:
            self.exchange.recorder.read_in_place(self.label, size)

    def computing(self) -> AbstractContextManager[None]:
        """Count the body of a ``with`` as computing beside the channel's transfers.

        With no other rank on the axis there are none, and nothing is counted.
        """
        if self.axis.size == 1:
            return nullcontext()
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
        """All-to-all of one row of ``counts`` [axis size, k] per rank, on the CPU; rows received.

        Collective: every rank of the axis must call.
        """
        received = torch.empty_like(counts)
        received[self.axis.index] = counts[self.axis.index]
        others = self.axis.others()
        self.start([(i, counts[i]) for i in others], [(i, received[i]) for i in others]).wait()
        return received

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
        gathered = self.all_gather(values.cpu().reshape(1, -1))
        return torch.cat(gathered).sum(0).reshape(values.shape)


class Pending:
    """Transfers in flight; what is sent stays alive until it has left."""

    def __init__(
        self,
        sends: list[Any],
        receives: list[Any],
        buffers: list[torch.Tensor],
        recorder: Recorder,
        label: Label,
    ) -> None:
        self._sends, self._receives, self._buffers = sends, receives, buffers
        self._recorder, self._label = recorder, label

    def received(self) -> None:
        """Block until everything has been received. What is sent must still not change."""
        arriving, self._receives = self._receives, self._wait_for(self._receives)
        self._count_arrival(arriving)

    def wait(self) -> None:
        """Block until everything has been received and sent."""
        arriving, both = self._receives, [*self._receives, *self._sends]
        self._receives = self._sends = self._wait_for(both)
        self._count_arrival(arriving)
        self._buffers = []

    def _count_arrival(self, receives: list[Any]) -> None:
        if receives:
            self._recorder.arrived(self._label)

    def _wait_for(self, works: list[Any]) -> list[Any]:
        start = time.perf_counter()
        for work in works:
            work.wait()
        if works:
            self._recorder.waited(self._label, time.perf_counter() - start)
        return []


class Buffers:
    """``count`` flat buffers that are used in turn; with a count of 0, a new one each time.

    Fresh pages cost more than what is written to them.

    Args:
        like: has their dtype and device.
    """

    def __init__(self, count: int, like: torch.Tensor) -> None:
        self._held = [like.new_empty(0)] * count
        self._like = like

    def take(self, number: int, values: int) -> torch.Tensor:
        """[values] of buffer ``number`` modulo their count, which grows where it is too small."""
        if not self._held:
            return empty_as(self._like, values)
        at = number % len(self._held)
        if self._held[at].numel() < values:
            self._held[at] = empty_as(self._like, values)
        return self._held[at][:values]


def any_rank(exchange: Exchange, rows: torch.Tensor, primitive: str) -> torch.Tensor:
    """[N] bool, what any rank has set of [N] bool. Collective: every rank must call.

    Sends N / 8 bytes to each of the other ranks.

    Args:
        primitive: under which the transfers are counted.
    """
    if exchange.grid.world == 1:
        return rows
    packed = torch.from_numpy(np.packbits(rows.numpy()))
    every = exchange.channel("world", primitive).all_gather(packed)
    joined = np.bitwise_or.reduce([some.numpy() for some in every])
    return torch.from_numpy(np.unpackbits(joined, count=len(rows)).astype(bool))
