"""Copies between the CPU and a GPU, through pinned memory that is used again.

A GPU copies from and to pinned memory on its own while the CPU goes on; a copy of any other memory
makes the CPU wait for all that was started before. Pinning takes longer than copying, so a few
buffers are pinned once and used in turn. Copies run on the stream that computes: what is started
later finds them done. The CPU waits where it reads what was copied to it, and where a buffer is
needed again. For tensors on the CPU nothing is copied, and nothing pinned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch

_BUFFERS = 4
_BUFFER_BYTES = 8 << 20
PINNED_BYTES = _BUFFERS * _BUFFER_BYTES
"""Pinned memory of a worker with a GPU, as long as no row is wider than a buffer."""


class Copy(Protocol):
    """A copy that was started."""

    def synchronize(self) -> None:
        """Block until it is done."""


class Copies(Protocol):
    """What a device can do: memory that it reaches, and copies that it makes on its own."""

    def pinned(self, size: int) -> torch.Tensor:
        """[size] bytes on the CPU."""

    def start(self, to: torch.Tensor, source: torch.Tensor) -> Copy:
        """Copy contiguous bytes between memory of :meth:`pinned` and the device."""


class CudaCopies:
    """Those of torch's current CUDA device and stream."""

    def pinned(self, size: int) -> torch.Tensor:
        """[size] bytes of page-locked memory."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def start(self, to: torch.Tensor, source: torch.Tensor) -> Copy:
        """Put a copy on the stream."""
        to.copy_(source, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        return done


class Staging:
    """The buffers of one worker.

    Attributes:
        device: where tensors live.

    Args:
        copies: how they get there; None: what torch has for the device, nothing for the CPU.
    """

    def __init__(self, device: torch.device, copies: Copies | None = None) -> None:
        self.device = device
        self._copies = CudaCopies() if copies is None and device.type == "cuda" else copies
        self._buffers: list[torch.Tensor] = [torch.empty(0, dtype=torch.uint8)] * _BUFFERS
        self._under_way: list[Copy | None] = [None] * _BUFFERS
        self._next = 0

    def upload(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor itself where it is on the device, else a copy that is.

        The tensor may be changed or freed once this returns.
        """
        if self._copies is None:
            return tensor.to(self.device)
        out = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device)
        to, source = _bytes(out), _bytes(tensor)
        for first in range(0, len(source), _BUFFER_BYTES):
            part = source[first : first + _BUFFER_BYTES]
            at, buffer = self._take(len(part))
            target = to[first : first + len(part)]
            self._under_way[at] = self._copies.start(target, buffer.copy_(part))
        return out

    def indices(self, numbers: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
        """Numbers of rows where these are: on the device, or on the CPU."""
        return self.upload(numbers) if of.device.type == self.device.type else numbers

    def batches(self, tensor: torch.Tensor, rows: int) -> Iterator[torch.Tensor]:
        """Consecutive rows of a tensor on the device, so many at a time, on the CPU.

        A tensor that is in host memory is not copied.

        While some are used the next are in flight. They are overwritten once the next are asked
        for, or something else is copied.
        """
        parts = (tensor[first : first + rows] for first in range(0, len(tensor), rows))
        if self._copies is None or self._on_host(tensor):
            yield from parts
            return
        coming: tuple[Copy, torch.Tensor] | None = None
        for part in parts:
            at, buffer = self._take(part.nbytes)
            copy = self._under_way[at] = self._copies.start(buffer, _bytes(part))
            if coming is not None:
                yield _arrived(*coming)
            coming = copy, buffer.view(part.dtype).view(part.shape)
        if coming is not None:
            yield _arrived(*coming)

    def download(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor itself where it is on the CPU, else a copy that is."""
        if self._copies is None or self._on_host(tensor):
            return tensor.cpu()
        out = torch.empty(tensor.shape, dtype=tensor.dtype)
        values = _BUFFER_BYTES // tensor.element_size()
        at, to = 0, out.view(-1)
        for part in self.batches(tensor.reshape(-1), values):
            to[at : at + len(part)] = part
            at += len(part)
        return out

    def _on_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is in host memory, which the device's is not."""
        return tensor.device.type == "cpu" != self.device.type

    def _take(self, size: int) -> tuple[int, torch.Tensor]:
        """The number of the buffer whose turn it is, and so many bytes of it, free to be used."""
        assert self._copies is not None
        at, self._next = self._next, (self._next + 1) % _BUFFERS
        under_way = self._under_way[at]
        if under_way is not None:
            under_way.synchronize()
        if self._buffers[at].numel() < size:
            # Those made while layers are computed are used after them too.
            with torch.inference_mode(False):
                self._buffers[at] = self._copies.pinned(max(size, _BUFFER_BYTES))
        return at, self._buffers[at][:size]


def _arrived(copy: Copy, data: torch.Tensor) -> torch.Tensor:
    copy.synchronize()
    return data


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes, as they stand if it is contiguous."""
    return tensor.contiguous().view(-1).view(torch.uint8)
