"""Copies between host memory and a GPU that run beside the kernels, one lane in each direction.

A lane is a stream. Work on it begins once all is done that was started on the stream that computes
when the work was; and what is computed after :meth:`Arriving.take` begins once the work is done. So
memory that was freed before is not written while kernels still read it, and the CPU waits for
nothing. On the CPU all is done at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import torch

from embertide.kernels.memory import empty
from embertide.kernels.pages import LEAST_BYTES

T = TypeVar("T")
R = TypeVar("R", covariant=True)

Lane = Literal["to device", "to host"]


class Arriving(Protocol[R]):
    """Work on a lane."""

    def take(self) -> R:
        """What it returned; all that is computed from now on comes after it."""


class Lanes(Protocol):
    """What a device can do beside its kernels.

    Attributes:
        device: where layers are computed.
    """

    device: torch.device

    def host(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Uninitialised float32 on the CPU, in memory that the device reads and writes by itself
        where it can."""

    def free(self, tensor: torch.Tensor) -> None:
        """Give up memory of :meth:`host`, of which no copy is under way."""

    def room(self, rows: int, width: int) -> torch.Tensor:
        """[rows, width] uninitialised float32 on the device."""

    def copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        """Copy contiguous values between memory of :meth:`host` and the device, in the order of
        the stream that it is called on."""

    def beside(self, lane: Lane, work: Callable[[], T]) -> Arriving[T]:
        """Do work on a lane, after all that was started before."""

    def finish(self) -> None:
        """Block until the device has done all that was started."""


@dataclass(frozen=True)
class Arrived(Generic[T]):
    """Work that is done."""

    value: T

    def take(self) -> T:
        """What it returned."""
        return self.value


class CpuLanes:
    """Those of a device that is the CPU: copies are made at once."""

    device = torch.device("cpu")

    def host(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Uninitialised float32."""
        return empty(shape)

    def free(self, tensor: torch.Tensor) -> None:
        """Nothing is to be given up."""

    def room(self, rows: int, width: int) -> torch.Tensor:
        """[rows, width] uninitialised float32."""
        return empty((rows, width))

    def copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        """Copy at once."""
        to.copy_(source)

    def beside(self, lane: Lane, work: Callable[[], T]) -> Arriving[T]:  # noqa: ARG002
        """Do it at once."""
        return Arrived(work())

    def finish(self) -> None:
        """All is done."""


@dataclass(frozen=True)
class _OnStream(Generic[T]):
    value: T
    done: torch.cuda.Event

    def take(self) -> T:
        torch.cuda.current_stream().wait_event(self.done)
        return self.value


class CudaLanes:
    """Streams beside torch's current one, on its current device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._streams: dict[Lane, torch.cuda.Stream] = {
            "to device": torch.cuda.Stream(device),
            "to host": torch.cuda.Stream(device),
        }
        self._locked: set[int] = set()

    def host(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Page-locked memory; small tensors, which share pages with others, are not.

        Where the system locks no more of it, copies go through a buffer of the driver: a warning
        reports it.
        """
        out = empty(shape)
        if out.nbytes >= LEAST_BYTES:
            error = torch.cuda.cudart().cudaHostRegister(out.data_ptr(), out.nbytes, 0)
            if int(error) == 0:
                self._locked.add(out.data_ptr())
            else:
                # CUDA keeps the error of the call, and the next kernel that is started raises it.
                with suppress(RuntimeError):
                    torch.ones(1, device=self.device)
                warnings.warn(
                    f"{out.nbytes >> 20} MiB of host memory can't be page-locked (CUDA error"
                    f" {int(error)}): the GPU copies them more slowly",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return out

    def free(self, tensor: torch.Tensor) -> None:
        """Unlock its pages."""
        at = tensor.data_ptr()
        if at in self._locked:
            self._locked.remove(at)
            torch.cuda.check_error(int(torch.cuda.cudart().cudaHostUnregister(at)))

    def room(self, rows: int, width: int) -> torch.Tensor:
        """[rows, width] uninitialised float32 of the current stream."""
        return torch.empty(rows, width, device=self.device)

    def copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        """Put the copy on the current stream."""
        to.copy_(source, non_blocking=True)

    def beside(self, lane: Lane, work: Callable[[], T]) -> Arriving[T]:
        """Put work on the stream of a lane.

        Its memory is that stream's; it is used again by later work on the lane alone, which begins
        after the kernels that were started until then.
        """
        stream = self._streams[lane]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            value = work()
            done = torch.cuda.Event()
            done.record()
        return _OnStream(value, done)

    def finish(self) -> None:
        """Block until all streams are done."""
        torch.cuda.synchronize(self.device)


def lanes_of(device: torch.device) -> Lanes:
    """Those of a device."""
    return CudaLanes(device) if device.type == "cuda" else CpuLanes()
