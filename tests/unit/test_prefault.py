"""Memory that one process makes ready, and another one's tensors come from."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from embertide.engine.planning.inputs import Inputs, NodeSplits
from embertide.io.readers.feature_schema import FeatureSchema
from embertide.io.readers.splits import Split
from embertide.kernels import native, prefault
from embertide.kernels.prefault import Prefault, Prefaulted
from embertide.launch.bootstrap.warmup import Warmup, free_bytes
from tests.support.patience import WAIT_SECONDS
from tests.support.prefault import MIB, has_huge_files, held

GIB = 1 << 30

pytestmark = [
    pytest.mark.tier(2),
    pytest.mark.skipif(native.lib is None, reason="torch has its own memory"),
    pytest.mark.skipif(not has_huge_files(), reason="the system has no huge pages for files"),
]


def files() -> closing[Prefault]:
    """Closed at the end of a ``with``."""
    return closing(Prefault())


def wait_for(filling: Prefault, size: int) -> None:
    """Until every file has so many bytes."""
    end = time.monotonic() + 60
    while min(filling._sizes) < size:
        assert time.monotonic() < end, filling._sizes
        time.sleep(0.01)


TAKE = """
import os, sys
import torch
from embertide.kernels import memory
from embertide.kernels.prefault import Prefaulted
from embertide.facts.telemetry.memory import allocated_bytes, count_shared

def used():
    return (allocated_bytes() - before) >> 20

process, number, size, wanted = map(int, sys.argv[1:5])
before = allocated_bytes()
file = Prefaulted(process, (number,), (size,)).take(0)
count_shared(file)
found = [used()]
tensor = memory.empty((wanted >> 2,)).fill_(3)
found.append(used())
assert float(tensor.min()) == float(tensor.max()) == 3.0
if len(sys.argv) > 5:
    memory.share()
    shown, places = memory.place_in_file(memory.empty((wanted >> 2,)).fill_(4))
    assert sum(size for _, size in places) == wanted, places
del tensor
memory.release_idle()
found.append(used())
print(*found)
"""


def take(given: Prefaulted, wanted: int, *more: str) -> list[int]:
    """MiB that a process has: with the file, with a tensor from it, and without."""
    arguments = [given.process, given.files[0], given.sizes[0], wanted]
    command = [sys.executable, "-c", TAKE, *map(str, arguments), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [int(text) for text in done.stdout.split()]


def test_pages_that_are_not_there_at_first_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill, refused = native.lib.fill_file, []

    def fill_at_last(*given: int) -> bool:
        if len(refused) < 3:
            refused.append(given)
            return False
        return bool(fill(*given))

    monkeypatch.setattr(native.lib, "fill_file", fill_at_last)
    with files() as made:
        made.begin(2, 16 * MIB)
        wait_for(made, 16 * MIB)
        assert [held(file) for file in made.stop(GIB).files] == [16, 16]
    assert len(set(refused)) == 1


def test_where_no_pages_are_to_be_had_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.lib, "fill_file", lambda *_given: False)
    monkeypatch.setattr(prefault, "_PAUSE_SECONDS", 0.0)
    with files() as made:
        made.begin(1, 16 * MIB)
        assert made._thread is not None
        made._thread.join(WAIT_SECONDS)
        assert not made._thread.is_alive()
        assert made.stop(GIB).sizes == (0,)


def test_tensors_of_another_process_come_from_it() -> None:
    with files() as made:
        made.begin(1, 32 * MIB)
        wait_for(made, 32 * MIB)
        given = made.stop(GIB)
        assert held(given.files[0]) == 32
        with_file, with_tensor, without = take(given, 30 * MIB)
        assert with_file == pytest.approx(32, abs=3)
        assert with_tensor == pytest.approx(32, abs=5), "no page beside the file's"
        assert without < 5
        assert held(given.files[0]) == 0, "pages go back while the file is still open here"


def test_a_larger_tensor_takes_new_pages_beside_it() -> None:
    with files() as made:
        made.begin(1, 16 * MIB)
        wait_for(made, 16 * MIB)
        with_file, with_tensor, without = take(made.stop(GIB), 48 * MIB)
        assert with_file == pytest.approx(16, abs=3)
        assert with_tensor == pytest.approx(48, abs=5)
        assert without < 5


def test_peers_can_read_what_comes_from_it() -> None:
    with files() as made:
        made.begin(1, 16 * MIB)
        wait_for(made, 16 * MIB)
        take(made.stop(GIB), 24 * MIB, "share")


def test_workers_get_about_as_much_and_no_more_than_fits() -> None:
    with files() as made:
        made.begin(3, 24 * MIB + 5)
        wait_for(made, 24 * MIB)
        given = made.stop(11 * MIB)
        assert given.sizes == (10 * MIB,) * 3
        assert [held(file) for file in given.files] == [10] * 3


def test_filling_ends_when_told_and_what_is_ready_is_given() -> None:
    with files() as made:
        made.begin(2, 64 * GIB)
        wait_for(made, 8 * MIB)
        given = made.stop(64 * GIB)
        assert [held(file) for file in given.files] == [size // MIB for size in given.sizes]
        assert all(8 * MIB <= size < 32 * GIB for size in given.sizes)


def test_nothing_is_given_where_nothing_was_begun() -> None:
    with files() as made:
        given = made.stop(GIB)
    assert given.take(0) is None
    assert replace(given, files=(5,), sizes=(0,)).take(0) is None


def test_a_process_that_has_gone_leaves_nothing() -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    assert Prefaulted(int(gone.stdout), (3,), (2 * MIB,)).take(0) is None


def split(rows: int, size: int, groups: tuple[int, ...] | None = None) -> Split:
    """Of one object."""
    return Split(
        uri="file:///x", object_size=size, etag="", start=0, stop=rows, size=size, row_groups=groups
    )


def inputs(*sizes: tuple[int, int], edges: Sequence[Split] = ()) -> Inputs:
    """Of node types with so many rows and columns."""
    types = {
        str(number): NodeSplits([split(rows, 1)], [], cast(FeatureSchema, _Width(width)))
        for number, (rows, width) in enumerate(sizes)
    }
    return Inputs({"": list(edges)}, types)


class _Width:
    def __init__(self, width: int) -> None:
        self.width = width


PLAN = {"features": 90 * MIB, "ingest": 100 * MIB, "infer": 130 * MIB}


def test_nothing_is_begun_for_inputs_that_are_far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prefault, "begin", lambda *_given: pytest.fail("begun"))
    far = replace(split(1 << 20, 1), uri="s3://bucket/x")
    with closing(Warmup()) as warmup:
        warmup.begin(inputs((1 << 20, 32), edges=[far]), 1, hashed=False)
        assert warmup.end(PLAN).files == ()


@pytest.mark.parametrize(
    ("edges", "begun"),
    [
        ([split(2 << 20, 5, groups=(0,)), split(3 << 20, 7)], 120 * MIB),
        ([split(100 * MIB, 100 * MIB)], 100 * MIB),
        ([split(2 << 20, 5)], 0),
    ],
    ids=["rows", "text", "few"],
)
def test_edges_take_some_of_it(
    edges: list[Split], begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(Prefault, "begin", lambda _self, *given: asked.append(given))
    with closing(Warmup()) as warmup:
        warmup.begin(inputs(edges=edges), 1, hashed=False)
    assert asked == [(1, begun)]


@pytest.mark.parametrize(
    ("sizes", "workers", "begun"),
    [
        ([(1 << 20, 32)], 1, 256 * MIB),
        ([(1 << 20, 32), (1 << 20, 16), (1 << 20, 15)], 2, 192 * MIB),
        ([(1 << 20, 15)], 1, 0),
        ([(1 << 30, 256)], 4, 768 * MIB),
    ],
)
def test_it_is_as_large_as_the_first_tensors(
    sizes: list[tuple[int, int]], workers: int, begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embertide.launch.bootstrap.warmup.free_bytes", lambda: 16 * GIB)
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(Prefault, "begin", lambda _self, *given: asked.append(given))
    with closing(Warmup()) as warmup:
        warmup.begin(inputs(*sizes), workers, hashed=False)
    assert asked == [(workers, begun)]


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    free = free_bytes(tmp_path)
    assert free > 64 * MIB
    (tmp_path / "memory.current").write_text(f"{10 * MIB}\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(tmp_path) == pytest.approx(free, rel=0.5)
    (tmp_path / "memory.max").write_text(f"{50 * MIB}\n")
    assert free_bytes(tmp_path) == 40 * MIB
    (tmp_path / "memory.max").write_text(f"{5 * MIB}\n")
    assert free_bytes(tmp_path) == 0


@pytest.mark.parametrize(
    ("workers", "hashed", "given"),
    [
        (1, False, 64 + 130 - 90),
        (1, True, 64 + 130 - 90),
        (2, False, 32 + 130 - 90),
        (2, True, 32 + 130 - 100),
    ],
)
def test_no_more_is_given_than_the_plan_has_room_for(
    workers: int, hashed: bool, given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Prefault, "begin", lambda *_given: None)
    monkeypatch.setattr(Prefault, "stop", lambda _self, most: asked.append(most))
    with closing(Warmup()) as warmup:
        warmup.begin(inputs((1 << 20, 16)), workers, hashed=hashed)
        warmup.end(PLAN)
    assert asked == [given * MIB], (
        "features, and what the fullest stage has more than the first, or than rounds"
    )
