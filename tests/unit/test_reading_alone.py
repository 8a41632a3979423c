"""One worker reads by itself: files in small pieces, ids looked up by threads that read them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from embertide.facts.telemetry.recorder import CountingRecorder
from embertide.graph.exchange import Exchange
from embertide.graph.idmap import HashedIds
from embertide.grid import Grid, GridShape
from embertide.io.readers.pool import map_splits
from embertide.io.storage.local import LocalStore
from embertide.io.storage.opening import open_storage
from embertide.kernels import native
from embertide.kernels.pages import Pages
from tests.support.edge_files import edge_input, read_all, rows_of, write_parquet


def alone(batches: list[Any], kind: str) -> HashedIds:
    exchange = Exchange(Grid(GridShape.of(1, 1), 0), torch.device("cpu"), CountingRecorder())
    return HashedIds(exchange, batches, kind, "the nodes")


def test_a_file_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(0).integers(0, 2**62, 600_000)
    write_parquet(tmp_path / "e.parquet", len(ids), src=ids, dst=ids)
    sizes: list[int] = []
    opened = LocalStore.open

    class Counting:
        def __init__(self, raw: Any) -> None:
            self._raw = raw

        def __getattr__(self, name: str) -> Any:
            return getattr(self._raw, name)

        def __enter__(self) -> Counting:
            return self

        def __exit__(self, *_: object) -> None:
            self._raw.close()

        def read(self, size: int = -1) -> bytes:
            found: bytes = self._raw.read(size)
            sizes.append(len(found))
            return found

    monkeypatch.setattr(LocalStore, "open", lambda *given: Counting(opened(*given)))
    found = read_all(open_storage(None), edge_input(tmp_path / "e.parquet", "parquet"), "int64")
    assert rows_of(found) == list(zip(ids.tolist(), ids.tolist(), strict=True))
    assert 0 < max(sizes) <= 1 << 20


@pytest.mark.parametrize("text", [pa.string(), pa.large_string()])
def test_threads_look_up_strings_of_either_type(text: Any) -> None:
    names = [f"n{i}" for i in range(20_000)]
    ids = alone([pa.array(names[:7]), pa.array(names[7:])], "string")
    assert not ids.collective
    asked = [pa.array(["nobody", *names[i::8]], text) for i in range(8)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda some: ids.find(some, Pages()), asked))
    expected = {name: int(at) for name, at in zip(names, ids.find(np.array(names)), strict=True)}
    assert sorted(expected.values()) == list(range(20_000))
    for some, dense in zip(asked, found, strict=True):
        assert dense.dtype == np.int32
        assert dense.tolist() == [expected.get(name, -1) for name in some.to_pylist()]


def test_integers_are_found_of_any_array() -> None:
    ids = alone([np.array([7, -3]), np.array([2**62])], "int64")
    given = [2**62, 0, -3]
    found = ids.find(np.array(given))
    assert found.tolist() == ids.find(pa.array(given), Pages()).tolist()
    assert found[1] == -1
    assert found[0] != found[2]


def test_readers_run_their_kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[int] = []
    monkeypatch.setattr("embertide.io.readers.pool.work_alone", lambda: marked.append(1))
    assert map_splits([1, 2, 3], lambda split: split * 2, 2) == [2, 4, 6]
    assert 1 <= len(marked) <= 2
    # The only split has all threads.
    marked.clear()
    assert map_splits([1], lambda split: split * 2, 2) == [2]
    assert not marked


@pytest.mark.parametrize("kernels", ["native", "fallback"])
def test_strings_of_a_worker_alone_need_no_look_up_themselves(
    kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels == "fallback":
        monkeypatch.setattr(native, "lib", None)
    names = [pa.array([f"{kind}{i}" for i in range(500)], pa.large_string()) for kind in "ab"]
    ids = alone(names, "string")
    dense = ids.given()
    assert dense is not None
    assert np.array_equal(dense, np.concatenate([ids.find(some) for some in names]))
    assert sorted(dense.tolist()) == list(range(1000))
    assert alone([np.arange(5)], "int64").given() is None
