"""Tensors in files without a name: what is read is what was written, and folders that are unfit."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from embertide.errors import StorageError
from embertide.facts.telemetry.estimate import PlannedSpill
from embertide.kernels import scratch, scratch_file
from embertide.kernels.scratch import Scratch
from embertide.launch.scratch import allow_files, check_scratch, scratch_folder
from embertide.spec import naming
from embertide.spec.grid import GridShape
from tests.support.cli import ESTIMATE
from tests.support.world import make_job

ROWS, WIDTH = 97, 6
LONG = 7001
"""Rows of several pages a column, the last of which is not full."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    monkeypatch.setattr(scratch, "CHUNK_BYTES", 512)
    return Scratch(tmp_path)


@pytest.fixture(params=["past the page cache", "through it", "refused by the file system"])
def ways(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Scratch:
    """Files of short pieces, by each way to the disk."""
    monkeypatch.setattr(scratch, "CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr(scratch_file, "PIECE_BYTES", 3 * mmap.PAGESIZE)
    if request.param == "through it":
        monkeypatch.setattr(scratch_file, "_DIRECT", 0)
    elif request.param == "refused by the file system":
        # As where it wants multiples of more than a page.
        monkeypatch.setattr(scratch_file, "_begins_page", lambda _values: True)
        unpaged = lambda count: np.empty(count + 1, np.uint8)[1:]  # noqa: E731
        monkeypatch.setattr(scratch, "empty_pages", unpaged)
    return Scratch(tmp_path)


@pytest.mark.parametrize("panel", [1, 5, 16, 24])
def test_long_tensors_are_what_was_written(ways: Scratch, panel: int) -> None:
    values = torch.randn(LONG, 24)
    by_rows, by_columns = (ways.empty(LONG, 24, panel) for _ in range(2))
    for first, last in pairwise([0, 1024, 4096, 4100, LONG]):
        by_rows.write_rows(first, values[first:last])
    for at in range(0, 24, panel):
        by_columns.write_columns(at, values[:, at : at + panel].contiguous())
    for file in (by_rows, by_columns):
        assert torch.equal(file.read_rows(0, LONG), values)
        assert torch.equal(file.read_rows(1023, 4101), values[1023:4101])
        for first, last in [(0, 24), (panel // 2, 13), (0, panel)]:
            assert torch.equal(file.read_columns(first, last), values[:, first:last])
        assert torch.equal(file.data.flatten(1)[:, :24], values)


def test_whole_pages_go_past_the_page_cache(tmp_path: Path) -> None:
    file = scratch_file.ScratchFile(tmp_path, 64 * mmap.PAGESIZE)
    values = np.frombuffer(os.urandom(64 * mmap.PAGESIZE), np.uint8)
    file.write(0, values)
    out = np.empty_like(values)
    file.read(0, out)
    assert np.array_equal(out, values)
    assert cached_pages(file) == 0
    file.close()


def cached_pages(file: scratch_file.ScratchFile) -> int:
    """Pages of a file that are in the page cache."""
    libc, mapped = ctypes.CDLL(None, use_errno=True), file.map()
    pages = np.empty(file.size // mmap.PAGESIZE, np.uint8)
    start = np.frombuffer(mapped, np.uint8).ctypes.data
    size = ctypes.c_size_t(file.size)
    assert libc.mincore(ctypes.c_void_p(start), size, ctypes.c_void_p(pages.ctypes.data)) == 0
    return int((pages & 1).sum())


@pytest.mark.parametrize("panel", [1, 2, 4, 6, 9])
@pytest.mark.parametrize("by", ["rows", "columns"])
def test_rows_and_columns_are_what_was_written(files: Scratch, panel: int, by: str) -> None:
    values = torch.randn(ROWS, WIDTH)
    file = files.empty(ROWS, WIDTH, panel)
    if by == "rows":
        for at in range(0, ROWS, 10):
            file.write_rows(at, values[at : at + 10])
    else:
        for at in range(0, WIDTH, file.panel):
            file.write_columns(at, values[:, at : at + file.panel])
    assert torch.equal(file.read_rows(0, ROWS), values)
    assert torch.equal(file.read_rows(13, 57), values[13:57])
    for first, last in [(0, WIDTH), (1, 3), (4, 6), (2, 5)]:
        assert torch.equal(file.read_columns(first, last), values[:, first:last])
    assert torch.equal(file.data[:].flatten(1)[:, :WIDTH], values)
    assert files.of(file.data) is file


@pytest.mark.parametrize(("first", "count"), [(2, 4), (0, 2), (0, 6), (4, 4)])
def test_columns_that_are_no_panel_are_refused(files: Scratch, first: int, count: int) -> None:
    file = files.empty(ROWS, WIDTH, 4)
    with pytest.raises(ValueError, match="are no panel of 6 columns, 4 in each"):
        file.write_columns(first, torch.ones(ROWS, count))
    assert not file.read_columns(0, WIDTH).any()


def test_values_that_were_written_through_the_mapping_are_read(files: Scratch) -> None:
    file, values = files.empty(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
    file.data.copy_(values)
    file.settle()
    assert torch.equal(file.read_rows(0, ROWS), values)


def test_a_tensor_without_rows(files: Scratch) -> None:
    file = files.empty(0, WIDTH, 4)
    file.write_columns(0, torch.empty(0, 4))
    assert file.read_rows(0, 0).shape == (0, WIDTH)
    assert file.read_columns(4, 6).shape == (0, 2)


def test_a_file_has_no_name_and_its_room_is_given_back(files: Scratch) -> None:
    file = files.empty(ROWS, WIDTH)
    assert not list(files.folder.iterdir())
    assert (files.count, files.held) == (1, file.size)
    file.close()
    file.close()
    assert (files.count, files.held, files.most) == (0, 0, file.size)


@pytest.fixture
def small_files() -> Iterator[int]:
    """The system refuses files of more than 1 MiB."""
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    yield 1 << 20
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))


def test_no_room_is_an_error_before_anything_is_written(files: Scratch, small_files: int) -> None:
    kept = files.empty(100, 100)
    with pytest.raises(StorageError) as caught:
        files.empty(small_files, 4)
    for part in (
        f"scratch folder {files.folder}",
        "no file of 16.0 MiB can be made there (File too large)",
        "name another folder with --scratch (spec.workers.scratch)",
    ):
        assert part in str(caught.value)
    assert files.held == kept.size


@pytest.fixture
def few_files() -> Iterator[int]:
    """How many files this process may have open, few more than it has, unless it asks for more."""
    least, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(int(file.name) for file in Path("/proc/self/fd").iterdir()) + 16
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))


def make_files(files: Scratch, count: int) -> None:
    for _ in range(count):
        files.empty(10, 10)


@pytest.mark.parametrize("beside", range(3))
def test_too_many_open_files_are_an_error_of_the_folder(
    files: Scratch, few_files: int, beside: int
) -> None:
    """Whichever of a tensor's three descriptors is the first that there is not."""
    others = [os.open("/dev/null", os.O_RDONLY) for _ in range(beside)]
    with pytest.raises(StorageError, match=r"can be made there \(Too many open files\)"):
        make_files(files, few_files)
    for file in others:
        os.close(file)


def test_a_graph_may_have_more_parts_than_files_are_open_at_first(
    files: Scratch, few_files: int
) -> None:
    allow_files()
    make_files(files, few_files)
    assert files.count == few_files


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory"):
        Scratch(tmp_path / "gone").empty(10, 10)


def test_a_file_that_cannot_be_read_names_the_folder(files: Scratch) -> None:
    file = files.empty(ROWS, WIDTH)
    with pytest.raises(StorageError, match=f"scratch folder {files.folder}: .* could not be read"):
        # Beyond its end, as where a disk has lost a part of it.
        file.read_rows(ROWS * 1000, ROWS * 1001)


def test_a_pods_folder_needs_room_for_its_own_worker_alone(tmp_path: Path) -> None:
    job, size = make_job(), int(0.6 * shutil.disk_usage(tmp_path).free)
    workers = job.spec.workers.model_copy(update={"scratch": str(tmp_path)})
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"workers": workers})})
    plan = replace(ESTIMATE, grid=GridShape.of(2, 1), spill=PlannedSpill(16, size, size, size, 1.0))
    check_scratch(job, plan, 1)
    with pytest.raises(StorageError, match="free, but tensors on disk need"):
        check_scratch(job, plan, 2)


def test_a_file_that_cannot_be_written_names_the_folder(files: Scratch, small_files: int) -> None:
    file = files.empty(ROWS, WIDTH)
    message = f"scratch folder {files.folder}: .* could not be written .File too large."
    with pytest.raises(StorageError, match=message):
        file.write_rows(small_files, torch.randn(4, WIDTH))


def unfit(folder: Path, size: int = 1 << 20) -> str:
    """What is said of a folder, of a run of two workers."""
    job = make_job()
    workers = job.spec.workers.model_copy(update={"scratch": str(folder)})
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"workers": workers})})
    assert scratch_folder(job) == folder
    plan = replace(ESTIMATE, grid=GridShape.of(2, 1), spill=PlannedSpill(16, size, size, size, 1.0))
    check_scratch(job, replace(plan, spill=None), 2)
    with pytest.raises(StorageError) as caught:
        check_scratch(job, plan, 2)
    assert "name another folder with --scratch (spec.workers.scratch)" in str(caught.value)
    return str(caught.value)


def test_folders_that_are_unfit_are_refused_before_workers_start(tmp_path: Path) -> None:
    assert "is not a folder of this machine" in unfit(tmp_path / "none")
    assert "is in memory (tmpfs)" in unfit(Path("/dev/shm"))
    assert "free, but tensors on disk need 2.0 PiB" in unfit(tmp_path, 1 << 50)
    assert "cannot be looked at (File name too long)" in unfit(tmp_path / ("long" * 100))


def test_a_pods_folder_is_made_on_the_volume_that_is_mounted_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine a folder that is none may be mistyped."""
    folder, job = tmp_path / "volume" / "tensors", make_job()
    assert "is not a folder of this machine" in unfit(folder)
    workers = job.spec.workers.model_copy(update={"scratch": str(folder)})
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"workers": workers})})
    monkeypatch.setenv(naming.ENV_IN_POD, "1")
    check_scratch(job, replace(ESTIMATE, spill=PlannedSpill(16, 1, 1, 1, 1.0)), 1)
    assert folder.is_dir()
    # Below a file no folder can be made.
    (tmp_path / "file").touch()
    assert "is not a folder of this machine" in unfit(tmp_path / "file" / "tensors")
