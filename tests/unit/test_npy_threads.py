"""Headers of npy arrays: read by two threads at once, and of large arrays."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.io.readers.npy import read_header
from embertide.io.storage.protocol import ObjectInfo, Storage


def deeper(calls: int, function: Callable[[], None]) -> None:
    """Call a function with more calls around it."""
    deeper(calls - 1, function) if calls else function()


@contextmanager
def interrupted_by(function: Callable[[], None]) -> Iterator[None]:
    """Garbage is collected at nearly every allocation, and each time a function is called."""
    threshold, this = gc.get_threshold(), threading.get_ident()

    def call(phase: str, _info: dict[str, int]) -> None:
        if phase == "stop" and threading.get_ident() == this:
            function()

    gc.callbacks.append(call)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(call)


def test_two_threads_read_headers_at_different_depths(tmp_path: Path, storage: Storage) -> None:
    """Before Python 3.13 its parser counts in one number how deep the calls of all threads are."""
    np.save(tmp_path / "ids.npy", np.arange(3))
    (info,) = storage.list(f"file://{tmp_path}/ids.npy")

    def read() -> None:
        assert read_header(storage, info).rows == 3

    with ThreadPoolExecutor(1) as other:
        reads: list[Future[None]] = []

        def let_other_read() -> None:
            reads.append(other.submit(deeper, 20, read))
            # It may have to wait for this thread: then this one goes on.
            wait(reads[-1:], timeout=0.02)

        with interrupted_by(let_other_read):
            read()
    assert reads
    assert [future.exception() for future in reads] == [None] * len(reads)


def test_of_a_large_array_only_the_beginning_is_read_for_its_header(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1 << 16, 4)))
    (info,) = storage.list(f"file://{tmp_path}/x.npy")
    given, opened = list[Any](), storage.open

    def open_parts(uri: str, info: ObjectInfo, parts: Any = None) -> Any:
        given.append(parts)
        return opened(uri, info, parts)

    monkeypatch.setattr(storage, "open", open_parts)
    assert read_header(storage, info).rows == 1 << 16
    assert given == [[(0, 1 << 16)]]
