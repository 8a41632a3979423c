"""Tensors in host memory, of which parts are on a GPU: for those that don't fit in its memory.

They are stored as on disk (:mod:`embertide.kernels.scratch`): panel by panel, a panel being some
columns of all rows, row by row. So all rows of a panel are one copy, and some rows of all panels a
few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

import torch

from embertide.footprint import FLOAT_BYTES
from embertide.kernels.lanes import Arriving, Lanes
from embertide.kernels.store import Tally

T = TypeVar("T")

CHUNK_BYTES = 8 << 20
"""Put together from several panels at a time, or cut for them."""


@dataclass
class HostStore(Tally):
    """Tensors in host memory, and what was copied there and from there."""

    lanes: Lanes
    _tensors: dict[int, HostTensor] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Tensors that there are."""
        return len(self._tensors)

    def empty(self, rows: int, width: int, panel: int | None = None) -> HostTensor:
        """A float32 tensor [rows, width], uninitialised.

        Args:
            panel: columns of a panel; by default all.
        """
        tensor = HostTensor(self, rows, width, min(panel or width, width))
        self._tensors[tensor.data.data_ptr()] = tensor
        self.hold(tensor.size)
        return tensor

    def room(self, rows: int, width: int) -> torch.Tensor:
        """[rows, width] float32, uninitialised, on the device."""
        return self.lanes.room(rows, width)

    def of(self, tensor: torch.Tensor) -> HostTensor:
        """The tensor of ours that begins where another one does; one without rows is as good as
        another."""
        if not tensor.numel():
            return self.empty(0, tensor.shape[1])
        return self._tensors[tensor.data_ptr()]

    def forget(self, tensor: HostTensor) -> None:
        """The tensor is closed."""
        self._tensors = {at: own for at, own in self._tensors.items() if own is not tensor}
        self.hold(-tensor.size)

    def mover(self) -> HostMover:
        """What copies parts beside the kernels."""
        return HostMover(self.lanes)


class HostTensor:
    """A float32 tensor [rows, width] in host memory.

    Parts are copied in the order of the stream that they are read or written on.

    Attributes:
        panel: columns of a panel; the last panel may have fewer, and is stored as wide as others.
        data: its values: [rows, width] of a single panel, else [rows, panels, panel].
    """

    def __init__(self, store: HostStore, rows: int, width: int, panel: int) -> None:
        self.rows, self.width, self.panel = rows, width, panel
        self._store, self._lanes = store, store.lanes
        self._values = self._lanes.host((-(-width // panel), rows, panel))
        self.size = self._values.nbytes
        self.data = self._values[0] if panel == width else self._values.permute(1, 0, 2)

    def close(self) -> None:
        """Give the memory back, once nothing is copied from it or to it any more."""
        if self.panel:
            self._lanes.finish()
            self._store.forget(self)
            self._lanes.free(self._values)
            self.panel = 0
            self.data = self._values = torch.empty(0, 0)

    # -- some columns of all rows --------------------------------------------------------------

    def read_columns(self, first: int, last: int) -> torch.Tensor:
        """[rows, last - first] some columns, on the device."""
        out = self._lanes.room(self.rows, last - first)
        if first % self.panel == 0 and last - first == self.panel:
            self._read(first // self.panel, 0, out)
        else:
            for start, stop in self.blocks(self.panel):
                self._read_parts(first, last, start, out[start:stop])
        return out

    def write_columns(self, first: int, values: torch.Tensor) -> None:
        """Set columns of a panel from number ``first`` on; [rows, k].

        Some of a panel's columns are set by the CPU, which waits for them.

        Raises:
            ValueError: they are columns of several panels.
        """
        number, at = divmod(first, self.panel)
        width = values.shape[1]
        whole = at == 0 and width == min(self.panel, self.width - first)
        if at + width > self.panel:
            raise ValueError(
                f"columns {first} to {first + width} are in several panels of {self.panel} columns"
            )
        if whole and width == self.panel and values.is_contiguous():
            self._write(number, 0, values)
            return
        for start, stop in self.blocks(self.panel):
            part = values[start:stop]
            if whole:
                self._write_part(number, start, part)
            else:
                self._values[number, start:stop, at : at + width] = part.cpu()
                self._store.moved(written=part.nbytes)

    # -- all columns of some rows ----------------------------------------------------------------

    def read_rows(self, first: int, last: int) -> torch.Tensor:
        """[last - first, width] some rows, on the device."""
        out = self._lanes.room(last - first, self.width)
        if self.panel == self.width:
            self._read(0, first, out)
        else:
            self._read_parts(0, self.width, first, out)
        return out

    def write_rows(self, first: int, values: torch.Tensor) -> None:
        """Set rows from number ``first`` on; [k, width]."""
        if self.panel == self.width and values.is_contiguous():
            self._write(0, first, values)
            return
        for number in range(len(self._values)):
            at = number * self.panel
            self._write_part(number, first, values[:, at : at + self.panel])

    def host_rows(self, first: int, last: int) -> torch.Tensor:
        """[last - first, width] some rows, where they are."""
        return self.data[first:last].flatten(1)[:, : self.width]

    def set_host_rows(self, first: int, values: torch.Tensor) -> None:
        """Set rows from number ``first`` on, from host memory; [k, width]."""
        for number, part in enumerate(values.split(self.panel, 1)):
            self._values[number, first : first + len(part), : part.shape[1]] = part

    def blocks(self, columns: int) -> Iterator[tuple[int, int]]:
        """First and last of some rows at a time, of so many columns; at least once."""
        step = max(1, CHUNK_BYTES // (FLOAT_BYTES * columns))
        for start in range(0, max(1, self.rows), step):
            yield start, min(start + step, self.rows)

    def wait(self) -> None:
        """All that was written is there, for who reads ``data``."""
        self._lanes.finish()

    def settle(self) -> None:
        """What was written to ``data`` is where it stays."""

    # -- one panel ---------------------------------------------------------------------------------

    def _read_parts(self, first: int, last: int, row: int, out: torch.Tensor) -> None:
        """Columns of several panels, or of a part of one, of the rows from number ``row`` on."""
        for number in range(first // self.panel, -(-last // self.panel)):
            part = self._lanes.room(len(out), self.panel)
            self._read(number, row, part)
            at = number * self.panel
            low, high = max(first, at), min(last, at + self.panel)
            out[:, low - first : high - first] = part[:, low - at : high - at]

    def _read(self, panel: int, row: int, out: torch.Tensor) -> None:
        self._lanes.copy(out, self._values[panel, row : row + len(out)])
        self._store.moved(read=out.nbytes)

    def _write_part(self, panel: int, row: int, values: torch.Tensor) -> None:
        """The columns of a panel, by memory on the device that is as wide as it."""
        part, width = self._lanes.room(len(values), self.panel), values.shape[1]
        part[:, :width], part[:, width:] = values, 0
        self._write(panel, row, part)

    def _write(self, panel: int, row: int, values: torch.Tensor) -> None:
        self._lanes.copy(self._values[panel, row : row + len(values)], values)
        self._store.moved(written=values.nbytes)


class HostMover(AbstractContextManager["HostMover"]):
    """Copies the next part to the device, and the last one from it, while one is computed.

    Of each there is at most one under way. Four parts have memory on the device then: the one that
    comes, the one that is computed, its result, and the result that goes.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._going: tuple[Arriving[None], object] | None = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.settle()
        self._lanes.finish()

    def ahead(
        self,
        reads: Iterable[Callable[[], T]],
        *,
        after_writes: bool = False,  # noqa: ARG002
    ) -> Iterator[T]:
        """What each call returns, in order; the next one comes while the caller uses it.

        Args:
            after_writes: means nothing here: memory is counted for both.
        """
        coming: deque[Arriving[T]] = deque()
        for read in reads:
            coming.append(self._lanes.beside("to device", read))
            if len(coming) > 1:
                # No name here refers to the result, which goes as soon as the caller is done.
                yield coming.popleft().take()
        while coming:
            yield coming.popleft().take()

    def write(self, call: Callable[[T], None], values: T) -> None:
        """Have values written, once what was to be written before is; they stay until then."""
        self.settle()
        self._going = self._lanes.beside("to host", lambda: call(values)), values

    def settle(self) -> None:
        """What is computed from now on comes after the last write."""
        going, self._going = self._going, None
        if going is not None:
            going[0].take()
