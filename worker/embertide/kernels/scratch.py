"""Tensors in files without a name, on a local disk: for what does not fit in memory.

A tensor of N rows is stored panel by panel, a panel being some columns of all rows, row by row.
So all rows of a panel are one long read, and some rows of all panels a few. A panel begins a page
of the file. The room of a file is reserved as it is made: a full disk is an error then, and not in
the middle of a layer. Files have no name, so they are gone with the process, however that ends.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from embertide.errors import StorageError
from embertide.facts.telemetry.format import human_bytes
from embertide.footprint import FLOAT_BYTES
from embertide.kernels.disk_threads import DiskThreads
from embertide.kernels.memory import empty
from embertide.kernels.pages import empty_pages
from embertide.kernels.scratch_file import ScratchFile
from embertide.kernels.store import Tally

Floats = npt.NDArray[np.float32]

CHUNK_BYTES = 8 << 20
"""Put together from several panels at a time."""
PAGE_ROWS = 1024
"""So many values of a column fill a page: parts of a multiple of these rows begin on one."""


@dataclass
class Scratch(Tally):
    """A folder for tensors that are not in memory, and what went to it and back.

    Any thread may count what it moved; files are made and closed by one.

    Attributes:
        folder: on a local disk.
    """

    folder: Path
    _tensors: dict[int, ScratchTensor] = field(default_factory=dict)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    @property
    def count(self) -> int:
        """Files that there are."""
        return len(self._tensors)

    def empty(self, rows: int, width: int, panel: int | None = None) -> ScratchTensor:
        """A float32 tensor [rows, width] whose values are zeros.

        Args:
            panel: columns of a panel; by default all.

        Raises:
            StorageError: the folder cannot be written to, or has no room.
        """
        made = ScratchTensor(self, rows, width, min(panel or width, width))
        self._tensors[made.data.data_ptr()] = made
        self.hold(made.size)
        return made

    def room(self, rows: int, width: int) -> torch.Tensor:
        """[rows, width] float32, uninitialised, in memory."""
        return empty((rows, width))

    def mover(self) -> DiskThreads:
        """What reads and writes parts while others are computed."""
        return DiskThreads()

    def of(self, tensor: torch.Tensor) -> ScratchTensor:
        """The tensor of ours that begins where another one does; one without rows is as good as
        another."""
        if not tensor.numel():
            return self.empty(0, tensor.shape[1])
        return self._tensors[tensor.data_ptr()]

    def forget(self, tensor: ScratchTensor) -> None:
        """The tensor's file is closed."""
        self._tensors = {at: one for at, one in self._tensors.items() if one is not tensor}
        self.hold(-tensor.size)

    def moved(self, *, written: float = 0, read: float = 0) -> None:
        """See :class:`Tally`."""
        with self._counting:
            super().moved(written=written, read=read)

    def open(self, size: int) -> tuple[ScratchFile, mmap.mmap]:
        """A new file without a name, with room for so many bytes, and the same mapped.

        Raises:
            StorageError: the folder cannot be written to, or has no room.
        """
        try:
            file = ScratchFile(self.folder, size)
            try:
                return file, file.map()
            except OSError:
                file.close()
                raise
        except OSError as error:
            raise StorageError(
                f"scratch folder {self.folder}: no file of {human_bytes(size)} can be made there"
                f" ({error.strerror or error}), beside {human_bytes(self.held)} that this worker"
                " has there; make room, or name another folder with --scratch"
                " (spec.workers.scratch)"
            ) from error


class ScratchTensor:
    """A float32 tensor [rows, width] in a file.

    Attributes:
        panel: columns of a panel; the last panel may have fewer, and is stored as wide as others.
        data: its values, mapped: [rows, width] of a single panel, else [rows, panels, panel]. For
            a few rows here and there, without the pages after theirs, until :meth:`wait`; whole
            panels and blocks are read and written by calls.
    """

    def __init__(self, scratch: Scratch, rows: int, width: int, panel: int) -> None:
        self.rows, self.width, self.panel = rows, width, panel
        self._scratch = scratch
        self._panels = -(-width // panel)
        pages = max(1, -(-FLOAT_BYTES * rows * panel // mmap.PAGESIZE))
        self._panel_bytes = pages * mmap.PAGESIZE
        file, self._map = scratch.open(self._panels * self._panel_bytes)
        self._file: ScratchFile | None = file
        self.size = file.size
        self.data = self._mapped()

    def _mapped(self) -> torch.Tensor:
        self._map.madvise(mmap.MADV_RANDOM)
        values = torch.frombuffer(self._map, dtype=torch.float32)
        if self._panels == 1:
            return values[: self.rows * self.panel].view(self.rows, self.panel)
        strides = (self.panel, self._panel_bytes // FLOAT_BYTES, 1)
        return values.as_strided((self.rows, self._panels, self.panel), strides)

    def close(self) -> None:
        """Give the room back; the values may not be used any more."""
        if self._file is not None:
            self._scratch.forget(self)
            self.data = torch.empty(0, 0)
            del self._map
            self._file.close()
            self._file = None

    # -- some columns of all rows --------------------------------------------------------------

    def read_columns(self, first: int, last: int) -> torch.Tensor:
        """[rows, last - first] some columns, in memory.

        Raises:
            StorageError: the disk cannot be read.
        """
        out = _floats(self.rows, last - first)
        if first % self.panel == 0 and last - first == self.panel:
            self._read(first // self.panel, 0, out)
        else:
            for start, stop in self.blocks(self.panel):
                self._read_parts(first, last, start, out[start:stop])
        return torch.from_numpy(out)

    def write_columns(self, first: int, values: torch.Tensor) -> None:
        """Set the columns of a panel from number ``first`` on; [rows, columns of the panel].

        Raises:
            ValueError: they are the columns of no panel.
            StorageError: the disk cannot be written.
        """
        columns = values.numpy()
        if first % self.panel or columns.shape[1] != min(self.panel, self.width - first):
            raise ValueError(
                f"columns {first} to {first + columns.shape[1]} are no panel of {self.width}"
                f" columns, {self.panel} in each"
            )
        if columns.shape[1] == self.panel and columns.flags.c_contiguous:
            self._write(first // self.panel, 0, columns)
            return
        for start, stop in self.blocks(self.panel):
            part = _floats(stop - start, self.panel)
            self._write_part(first // self.panel, start, columns[start:stop], part)

    # -- all columns of some rows ----------------------------------------------------------------

    def read_rows(self, first: int, last: int) -> torch.Tensor:
        """[last - first, width] some rows, in memory.

        Raises:
            StorageError: the disk cannot be read.
        """
        out = _floats(last - first, self.width)
        if self._panels == 1:
            self._read(0, first, out)
        else:
            self._read_parts(0, self.width, first, out)
        return torch.from_numpy(out)

    def write_rows(self, first: int, values: torch.Tensor) -> None:
        """Set rows from number ``first`` on; [k, width].

        Raises:
            StorageError: the disk cannot be written.
        """
        rows = values.numpy()
        if self._panels == 1 and rows.flags.c_contiguous:
            self._write(0, first, rows)
            return
        part = _floats(len(rows), self.panel)
        for number in range(self._panels):
            at = number * self.panel
            self._write_part(number, first, rows[:, at : at + self.panel], part)

    host_rows, set_host_rows = read_rows, write_rows

    def blocks(self, columns: int) -> Iterator[tuple[int, int]]:
        """First and last of some rows at a time, of so many columns; at least once."""
        step = max(1, CHUNK_BYTES // (FLOAT_BYTES * columns))
        step = step // PAGE_ROWS * PAGE_ROWS or step
        for start in range(0, max(1, self.rows), step):
            yield start, min(start + step, self.rows)

    def wait(self) -> None:
        """The disk has all rows and columns that were written, for who reads the mapped values in
        their order.

        Raises:
            StorageError: the disk cannot be written.
        """
        self._map.madvise(mmap.MADV_SEQUENTIAL)
        try:
            self._opened.wait()
        except OSError as error:
            raise self._failed("written", error) from error

    def settle(self) -> None:
        """What was written to the mapped values goes to the disk, and leaves the page cache.

        Raises:
            StorageError: the disk cannot be written.
        """
        self._map.madvise(mmap.MADV_DONTNEED)
        try:
            self._opened.settle()
        except OSError as error:
            raise self._failed("written", error) from error

    # -- one panel ---------------------------------------------------------------------------------

    @property
    def _opened(self) -> ScratchFile:
        assert self._file is not None, "the tensor is closed"
        return self._file

    def _place(self, panel: int, row: int) -> int:
        return panel * self._panel_bytes + FLOAT_BYTES * self.panel * row

    def _read_parts(self, first: int, last: int, row: int, out: Floats) -> None:
        """Columns of several panels, or of a part of one, of the rows from number ``row`` on."""
        part = _floats(len(out), self.panel)
        for number in range(first // self.panel, -(-last // self.panel)):
            self._read(number, row, part)
            at = number * self.panel
            low, high = max(first, at), min(last, at + self.panel)
            out[:, low - first : high - first] = part[:, low - at : high - at]

    def _read(self, panel: int, row: int, out: Floats) -> None:
        try:
            self._opened.read(self._place(panel, row), out.view(np.uint8).reshape(-1))
        except OSError as error:
            raise self._failed("read", error) from error
        self._scratch.moved(read=out.nbytes)

    def _write_part(self, panel: int, row: int, values: Floats, part: Floats) -> None:
        """Some columns of rows, by ``part``, which is as wide as a panel."""
        width = values.shape[1]
        part[:, :width], part[:, width:] = values, 0
        self._write(panel, row, part)

    def _write(self, panel: int, row: int, values: Floats) -> None:
        try:
            self._opened.write(self._place(panel, row), values.view(np.uint8).reshape(-1))
        except OSError as error:
            raise self._failed("written", error) from error
        self._scratch.moved(written=values.nbytes)

    def _failed(self, what: str, error: OSError) -> StorageError:
        return StorageError(
            f"scratch folder {self._scratch.folder}: a file of {human_bytes(self.size)} could not"
            f" be {what} ({error.strerror or error}); see whether the disk is sound, or name"
            " another folder with --scratch (spec.workers.scratch)"
        )


def _floats(rows: int, width: int) -> Floats:
    """[rows, width] uninitialised, from the beginning of a page on."""
    return empty_pages(FLOAT_BYTES * rows * width).view(np.float32).reshape(rows, width)
