"""Tensors in files without a name, on a local disk: for what does not fit in memory.

A tensor of N rows is stored panel by panel, a panel being some columns of all rows, row by row.
So all rows of a panel are one long read, and some rows of all panels a few. The room of a file is
reserved as it is made: a full disk is an error then, and not in the middle of a layer. Files have
no name, so they are gone with the process, however that ends.

What was read or written is dropped from the page cache, and at most ``_IN_FLIGHT`` chunks of a file
are dirty: in a container the page cache counts as memory.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from embertide.errors import StorageError
from embertide.footprint import FLOAT_BYTES
from embertide.kernels.memory import empty
from embertide.telemetry.format import human_bytes

CHUNK_BYTES = 8 << 20
"""Read and written at a time."""
_IN_FLIGHT = 2
"""Chunks that are on their way to the disk while others are written."""
_WRITE, _WRITE_AND_WAIT = 2, 7
"""Flags of ``sync_file_range``: begin to write; write, and wait before and after."""


@dataclass
class Scratch:
    """A folder for tensors that are not in memory, and what went to it and back.

    Attributes:
        folder: on a local disk.
        written, read: bytes so far.
        held, most: bytes that its files have now, and the most that they had.
    """

    folder: Path
    written: int = 0
    read: int = 0
    held: int = 0
    most: int = 0
    _tensors: dict[int, ScratchTensor] = field(default_factory=dict)

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
        self.held += made.size
        self.most = max(self.most, self.held)
        return made

    def of(self, tensor: torch.Tensor) -> ScratchTensor:
        """The tensor of ours that begins where another one does; one without rows is as good as
        another."""
        if not tensor.numel():
            return self.empty(0, tensor.shape[1])
        return self._tensors[tensor.data_ptr()]

    def forget(self, tensor: ScratchTensor) -> None:
        """The tensor's file is closed."""
        self._tensors = {at: one for at, one in self._tensors.items() if one is not tensor}
        self.held -= tensor.size

    def open(self, size: int) -> int:
        """The descriptor of a new file without a name, with room for so many bytes.

        Raises:
            StorageError: the folder cannot be written to, or has no room.
        """
        file = -1
        try:
            file = _unnamed(self.folder)
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            if file >= 0:
                os.close(file)
            raise StorageError(
                f"scratch folder {self.folder}: no file of {human_bytes(size)} can be made there"
                f" ({error.strerror or error}), beside {human_bytes(self.held)} that this worker"
                " has there; make room, or name another folder with --scratch"
                " (spec.workers.scratch)"
            ) from error
        return file


class ScratchTensor:
    """A float32 tensor [rows, width] in a file.

    Attributes:
        panel: columns of a panel; the last panel may have fewer, and is stored as wide as others.
        data: its values, mapped: [rows, width] of a single panel, else [rows, panels, panel]. For
            a few rows here and there; whole panels and blocks are read and written by calls.
    """

    def __init__(self, scratch: Scratch, rows: int, width: int, panel: int) -> None:
        self.rows, self.width, self.panel = rows, width, panel
        self._scratch = scratch
        self._panels = -(-width // panel)
        self.size = max(mmap.PAGESIZE, FLOAT_BYTES * rows * self._panels * panel)
        self._file = scratch.open(self.size)
        self._map = mmap.mmap(self._file, self.size)
        values = torch.frombuffer(self._map, dtype=torch.float32)
        values = values[: rows * self._panels * panel].view(self._panels, rows, panel)
        self.data = values[0] if self._panels == 1 else values.permute(1, 0, 2)
        self._dirty: list[tuple[int, int]] = []

    def close(self) -> None:
        """Give the room back; the values may not be used any more."""
        if self._file >= 0:
            self._scratch.forget(self)
            os.close(self._file)
            self._file, self.data = -1, torch.empty(0, 0)
            del self._map

    # -- some columns of all rows --------------------------------------------------------------

    def read_columns(self, first: int, last: int) -> torch.Tensor:
        """[rows, last - first] some columns, in memory.

        Raises:
            StorageError: the disk cannot be read.
        """
        out = empty((self.rows, last - first))
        whole = first % self.panel == 0 and last - first == self.panel
        for start, stop in self.blocks(self.panel):
            if whole:
                self._read(first // self.panel, start, out[start:stop])
            else:
                self._read_parts(first, last, start, out[start:stop])
        return out

    def write_columns(self, first: int, values: torch.Tensor) -> None:
        """Set the columns of a panel from number ``first`` on; [rows, columns of the panel].

        Raises:
            StorageError: the disk cannot be written.
        """
        for start, stop in self.blocks(self.panel):
            self._write(first // self.panel, start, values[start:stop])

    # -- all columns of some rows ----------------------------------------------------------------

    def read_rows(self, first: int, last: int) -> torch.Tensor:
        """[last - first, width] some rows, in memory.

        Raises:
            StorageError: the disk cannot be read.
        """
        out = empty((last - first, self.width))
        if self._panels == 1:
            self._read(0, first, out)
        else:
            self._read_parts(0, self.width, first, out)
        return out

    def write_rows(self, first: int, values: torch.Tensor) -> None:
        """Set rows from number ``first`` on; [k, width].

        Raises:
            StorageError: the disk cannot be written.
        """
        for number in range(self._panels):
            at = number * self.panel
            self._write(number, first, values[:, at : at + self.panel])

    def blocks(self, columns: int) -> Iterator[tuple[int, int]]:
        """First and last of some rows at a time, of so many columns; at least once."""
        step = max(1, CHUNK_BYTES // (FLOAT_BYTES * columns))
        for start in range(0, max(1, self.rows), step):
            yield start, min(start + step, self.rows)

    def settle(self) -> None:
        """What was written to the mapped values goes to the disk, and leaves the page cache."""
        self._map.madvise(mmap.MADV_DONTNEED)
        self._sync(0, self.size, _WRITE)
        os.posix_fadvise(self._file, 0, self.size, os.POSIX_FADV_DONTNEED)

    # -- one panel ---------------------------------------------------------------------------------

    def _place(self, panel: int, row: int) -> int:
        return FLOAT_BYTES * self.panel * (panel * self.rows + row)

    def _read_parts(self, first: int, last: int, row: int, out: torch.Tensor) -> None:
        """Columns of several panels, or of a part of one, of the rows from number ``row`` on."""
        part = empty((len(out), self.panel))
        for number in range(first // self.panel, -(-last // self.panel)):
            self._read(number, row, part)
            at = number * self.panel
            low, high = max(first, at), min(last, at + self.panel)
            out[:, low - first : high - first] = part[:, low - at : high - at]

    def _read(self, panel: int, row: int, out: torch.Tensor) -> None:
        at, view = self._place(panel, row), out.numpy().view("u1").reshape(-1).data
        done = 0
        try:
            while done < len(view):
                count = os.preadv(self._file, [view[done : done + CHUNK_BYTES]], at + done)
                if count == 0:
                    raise OSError("the file ends too early")
                done += count
            os.posix_fadvise(self._file, at, done, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise self._failed("read", error) from error
        self._scratch.read += done

    def _write(self, panel: int, row: int, values: torch.Tensor) -> None:
        if values.shape[1] < self.panel:
            padded = empty((len(values), self.panel)).zero_()
            padded[:, : values.shape[1]] = values
            values = padded
        at = self._place(panel, row)
        view = values.contiguous().numpy().view("u1").reshape(-1).data
        done = 0
        try:
            while done < len(view):
                count = os.pwritev(self._file, [view[done : done + CHUNK_BYTES]], at + done)
                self._leaves(at + done, count)
                done += count
        except OSError as error:
            raise self._failed("written", error) from error
        self._scratch.written += done

    def _leaves(self, at: int, count: int) -> None:
        """A chunk begins to go to the disk; one that began earlier is waited for and dropped."""
        self._sync(at, count, _WRITE)
        self._dirty.append((at, count))
        if len(self._dirty) > _IN_FLIGHT:
            first, size = self._dirty.pop(0)
            self._sync(first, size, _WRITE_AND_WAIT)
            os.posix_fadvise(self._file, first, size, os.POSIX_FADV_DONTNEED)

    def _sync(self, at: int, count: int, flags: int) -> None:
        if _sync_file_range(self._file, at, count, flags):
            number = ctypes.get_errno()
            raise self._failed("written", OSError(number, os.strerror(number)))

    def _failed(self, what: str, error: OSError) -> StorageError:
        return StorageError(
            f"scratch folder {self._scratch.folder}: a file of {human_bytes(self.size)} could not"
            f" be {what} ({error.strerror or error}); see whether the disk is sound, or name"
            " another folder with --scratch (spec.workers.scratch)"
        )


def _unnamed(folder: Path) -> int:
    """The descriptor of a file that has no name; on some file systems it has had one."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EINVAL, errno.EOPNOTSUPP):
            raise
    file, name = tempfile.mkstemp(prefix="embertide-", dir=folder)
    Path(name).unlink()
    return file


_libc = ctypes.CDLL(None, use_errno=True)


def _sync_file_range(file: int, at: int, count: int, flags: int) -> int:
    """0, or -1 with ``errno`` set. Systems without it write as they see fit."""
    call = getattr(_libc, "sync_file_range", None)
    if call is None:
        return 0
    wide = ctypes.c_int64
    return int(call(file, wide(at), wide(count), ctypes.c_uint(flags)))
