"""What is read or written once stays out of the system's cache, where the system can do that."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.readers.columns import id_column
from embertide.readers.parquet import read_parquet, split_parquet
from embertide.storage import uncached
from embertide.storage.opening import open_storage

CONTENT = bytes(range(256)) * (1 << 12)
DONTCACHE = 0x80


def can(folder: Path) -> bool:
    """Whether the system has such reads, for files of this folder."""
    probe = folder / "probe"
    probe.write_bytes(b"x")
    with probe.open("rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(1)], 0, DONTCACHE) == 1
        except (OSError, NotImplementedError):
            return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if not can(tmp_path):
        pytest.skip("RWF_DONTCACHE needs Linux 6.14 and a file system that knows it")
    return tmp_path


def cached_bytes(path: Path) -> int:
    """Of a file, in the system's cache."""
    size = path.stat().st_size
    held = (ctypes.c_uint8 * -(-size // mmap.PAGESIZE))()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
        view = np.frombuffer(pages, np.uint8)
        start = ctypes.c_void_p(view.ctypes.data)
        assert ctypes.CDLL(None).mincore(start, ctypes.c_size_t(size), held) == 0
        del view
    return mmap.PAGESIZE * sum(page & 1 for page in held)


def forget(path: Path) -> None:
    """Leave nothing of a file in the cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert cached_bytes(path) == 0


def read_on(file: Any) -> bytes:
    """What is left of a file, piece by piece."""
    return b"".join(iter(lambda: file.read(1 << 18), b""))


def test_a_read_leaves_nothing(folder: Path) -> None:
    path = folder / "read"
    path.write_bytes(CONTENT)
    forget(path)
    with open_storage(None).open(f"file://{path}") as file:
        assert read_on(file) == CONTENT
    assert cached_bytes(path) < len(CONTENT) // 4


def test_what_is_in_the_cache_stays(folder: Path) -> None:
    path = folder / "hot"
    path.write_bytes(CONTENT)
    with open_storage(None).open(f"file://{path}") as file:
        assert read_on(file) == CONTENT
    assert cached_bytes(path) == len(CONTENT)


def test_a_written_file_leaves_nothing(folder: Path) -> None:
    path = folder / "written"
    with open_storage(None).create(f"file://{path}") as file:
        for at in range(0, len(CONTENT), 1 << 18):
            file.write(CONTENT[at : at + (1 << 18)])
    assert cached_bytes(path) < len(CONTENT) // 4
    assert path.read_bytes() == CONTENT


def test_parquet_columns_leave_nothing(folder: Path) -> None:
    path = folder / "ids.parquet"
    ids = np.random.default_rng(0).integers(0, 1 << 40, 1 << 18)
    pq.write_table(pa.table({"id": ids}), path, use_dictionary=False)
    forget(path)
    storage, column = open_storage(None), id_column("id", "id", "int64")
    info = storage.stat(f"file://{path}")
    assert info is not None
    (split,) = split_parquet(storage, info, [column], 1 << 30)
    found = [arrays[0] for arrays, _ in read_parquet(storage, [column], split, 1 << 16)]
    assert np.array_equal(np.concatenate(found), ids)
    assert cached_bytes(path) < path.stat().st_size // 4


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_systems_that_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    calls = []

    def refuse(*given: Any) -> int:
        calls.append(given)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(uncached.os, "preadv", refuse, raising=False)
    monkeypatch.setattr(uncached.os, "pwritev", refuse, raising=False)
    path = tmp_path / "file"
    with open_storage(None).create(f"file://{path}") as out:
        out.write(CONTENT)
        out.write(CONTENT)
    with open_storage(None).open(f"file://{path}") as file:
        file.seek(100)
        assert read_on(file) == (CONTENT + CONTENT)[100:]
    assert len(calls) == 2


def test_other_errors_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    monkeypatch.setattr(uncached.os, "preadv", fail, raising=False)
    with open_storage(None).open(f"file://{path}") as file, pytest.raises(OSError, match="Input"):
        read_on(file)
