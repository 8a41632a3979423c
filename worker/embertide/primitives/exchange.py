"""The one place that moves bytes between workers.

Everything is point-to-point and asynchronous: an exchange posts its receives and sends and
returns at once; ``wait`` blocks until the data is there. Messages between two workers carry
that pair's running number as their tag, so pairs never have to agree with anyone else on how
many exchanges there are. Empty messages are not sent.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from embertide.grid import Axis, Grid
from embertide.telemetry.recorder import Label, Recorder


class Pending:
    """Transfers on their way; keeps their buffers alive until :meth:`wait`."""

    def __init__(self, works: list[Any], buffers: list[torch.Tensor], done: Recorder, label: Label):
        self._works = works
        self._buffers = buffers
        self._recorder = done
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
    """Moves tensors between this worker and others, and counts them.

    Args:
        grid: our place.
        device: where exchanged tensors live (``cpu`` with gloo, ``cuda`` with NCCL).
        recorder: receives every transfer.
    """

    def __init__(self, grid: Grid, device: torch.device, recorder: Recorder) -> None:
        self.grid = grid
        self.device = device
        self.recorder = recorder
        self._sent: Counter[int] = Counter()
        self._received: Counter[int] = Counter()

    def start(
        self,
        label: Label,
        sends: Sequence[tuple[int, torch.Tensor]],
        receives: Sequence[tuple[int, torch.Tensor]],
    ) -> Pending:
        """Post transfers with global ranks; tensors must be contiguous and stay untouched.

        Both ends must know the sizes: an empty tensor is skipped on both.
        """
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

    def sizes(self, label: Label, axis: Axis, counts: torch.Tensor) -> torch.Tensor:
        """Tell every member its row of ``counts`` [size, k] int64; returns theirs for us."""
        counts = counts.to(self.device)
        told = torch.empty_like(counts)
        told[axis.index] = counts[axis.index]
        others = axis.others()
        self.start(
            label,
            [(axis.ranks[i], counts[i]) for i in others],
            [(axis.ranks[i], told[i]) for i in others],
        ).wait()
        return told.cpu()

    def all_to_all(
        self, label: Label, axis: Axis, parts: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Send part i to member i; returns what each member sent us, in member order.

        What a member receives has the dtype and trailing dimensions of the part it keeps for
        itself; lengths may differ. Ours is passed through without a copy.
        """
        lengths = torch.tensor([[len(part)] for part in parts], dtype=torch.int64)
        incoming = self.sizes(label, axis, lengths)[:, 0].tolist()
        sample = parts[axis.index]
        result = [
            sample if i == axis.index else sample.new_empty((incoming[i], *sample.shape[1:]))
            for i in range(axis.size)
        ]
        others = axis.others()
        self.start(
            label,
            [(axis.ranks[i], parts[i].contiguous()) for i in others],
            [(axis.ranks[i], result[i]) for i in others],
        ).wait()
        return result

    def all_gather(self, label: Label, axis: Axis, part: torch.Tensor) -> list[torch.Tensor]:
        """Every member's ``part`` (lengths may differ), in member order."""
        return self.all_to_all(label, axis, [part] * axis.size)

    def all_reduce(self, label: Label, values: torch.Tensor) -> torch.Tensor:
        """Sum over all workers, on every worker; for small tensors."""
        parts = self.all_gather(label, self.grid.world_axis, values.to(self.device).reshape(1, -1))
        return torch.cat(parts).sum(0).reshape(values.shape).cpu()

    def all_objects(self, value: Any) -> list[Any]:
        """Every worker's small Python object, in rank order (control plane, not counted)."""
        if self.grid.world == 1:
            return [value]
        result: list[Any] = [None] * self.grid.world
        dist.all_gather_object(result, value)
        return result

    def barrier(self) -> None:
        """Wait until every worker is here."""
        self.all_objects(None)
