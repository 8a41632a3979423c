"""The graph of a relation is read as it was written, any rows of it, or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embertide.engine.stages.kept_graph import (
    ReadEdges,
    SealedGraph,
    open_graph,
    refer_to,
    write_graph,
)
from embertide.facts.telemetry.omissions import DroppedEdges
from embertide.facts.telemetry.recorder import CountingRecorder
from embertide.graph import shuffle
from embertide.graph.exchange import Exchange
from embertide.graph.moved_edges import MovedEdges, patched
from embertide.graph.shuffle import histogram_size
from embertide.grid import Grid, RowRanges
from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers import reading, seals, writing
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged, EdgePart
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.writing import Writer
from embertide.kernels.csr import Csr
from embertide.spec.grid import GridShape

KEY, OTHER, NAME = "a" * 32, "b" * 32, "c" * 32
VERSION = "20261126T180000Z-3fa9c1"
ROWS, SOURCES = 700, 90
DROPPED = DroppedEdges("a:b:c", 3, 40, ["row 1"])


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, and buckets of four."""
    monkeypatch.setattr(writing, "BLOCK_BYTES", 100)
    monkeypatch.setattr(seals, "PAGE_BYTES", 36)
    monkeypatch.setattr(reading, "LOCAL_GAP_BYTES", 0)
    monkeypatch.setattr(shuffle, "HISTOGRAM_BITS", 8)


def make_csr(*, weighted: bool, features: int, wide: bool = False) -> Csr:
    g = np.random.default_rng(1)
    lengths = g.integers(0, 5, ROWS) * (g.random(ROWS) < 0.7)
    lengths[3] = 200
    edges = int(lengths.sum())
    kind = torch.int64 if wide else torch.int32
    return Csr(
        0,
        torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])),
        torch.from_numpy(g.integers(0, SOURCES, edges)).to(kind),
        torch.rand(edges) if weighted else None,
        torch.rand(edges, features) if features else None,
    )


def keep(folder: Path, csr: Csr, nodes: int = SOURCES) -> SealedGraph:
    """Write a graph, and open what was written."""
    exchange = Exchange(Grid(GridShape.of(1, 1), 0), torch.device("cpu"), CountingRecorder())
    _, buckets = histogram_size(csr.rows)
    read = ReadEdges(np.arange(buckets, dtype=np.int64), 40, DROPPED)
    store = LayerStore(open_storage(None), folder.as_uri(), KEY, VERSION, on_one_machine=True)
    ranges = RowRanges((0, csr.rows), 1)
    with Writer(store, 0, exchange.all_objects) as writer:
        record = write_graph(exchange, writer, NAME, "a:b:c", csr, ranges, read)
        assert record.why == ""
        assert record.sealing().result() == ""
    sealed = store.sealed(NAME)
    assert sealed == record.seal
    return open_graph(Kept(store, sealed), nodes, csr.rows)


def writer_of(store: LayerStore) -> Writer:
    return Writer(store, 0, lambda own: [own])


def assert_equal(graph: Csr, other: Csr) -> None:
    assert graph.first == other.first
    for name in ("indptr", "cols", "weights", "features"):
        some, others = getattr(graph, name), getattr(other, name)
        assert (some is None) == (others is None)
        assert some is None or (some.dtype == others.dtype and torch.equal(some, others))


@pytest.mark.parametrize(("weighted", "features"), [(False, 0), (True, 0), (True, 3), (False, 1)])
def test_any_rows_are_read_as_they_were_written(
    weighted: bool, features: int, tmp_path: Path
) -> None:
    csr = make_csr(weighted=weighted, features=features)
    graph = keep(tmp_path, csr)
    for first, last in [(0, ROWS), (0, 0), (ROWS, ROWS), (1, 3), (3, 4), (255, 256), (399, 700)]:
        assert_equal(graph.rows(first, last), csr.slice(first, last))


@pytest.mark.parametrize(("weighted", "features"), [(False, 0), (True, 3)])
@pytest.mark.parametrize("rows", [[], [0], [3, 4, 5], [2, 255, 256, 699], list(range(ROWS))])
def test_some_rows_are_read_alone(
    rows: list[int], weighted: bool, features: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    csr = make_csr(weighted=weighted, features=features)
    graph, wanted = keep(tmp_path, csr), np.zeros(ROWS, bool)
    wanted[rows] = True
    opened = list[str]()
    storage = type(graph.kept.store.storage)
    read = storage.read_into

    def note(own: Any, uri: str, buffer: memoryview, spans: Any) -> int:
        opened.append(uri)
        return read(own, uri, buffer, spans)

    monkeypatch.setattr(storage, "read_into", note)
    some = graph.some(wanted)
    assert some.indptr.diff().tolist() == np.where(wanted, csr.indptr.diff().numpy(), 0).tolist()
    for row in rows:
        assert_equal(some.slice(row, row + 1), csr.slice(row, row + 1))
    if len(rows) < 2:
        assert len(rows) <= len(opened) <= 3 * (2 + weighted + features)


def test_sources_beyond_32_bits_are_read_as_they_were_written(tmp_path: Path) -> None:
    csr = make_csr(weighted=False, features=0, wide=True)
    assert_equal(keep(tmp_path, csr, nodes=2**31).rows(5, 600), csr.slice(5, 600))


def test_a_graph_without_edges_is_kept(tmp_path: Path) -> None:
    csr = Csr(0, torch.zeros(10, dtype=torch.int64), torch.empty(0, dtype=torch.int32))
    assert_equal(keep(tmp_path, csr).rows(2, 9), csr.slice(2, 9))


def test_one_rank_stands_for_the_edges_of_all(tmp_path: Path) -> None:
    graph = keep(tmp_path, make_csr(weighted=True, features=3))
    first, other = graph.edges(0), graph.edges(1)
    assert (first.rows, other.rows) == (40, 0)
    assert first.dropped == other.dropped == DROPPED
    assert first.histogram.tolist() == list(range(len(first.histogram)))
    assert not other.histogram.any()
    assert (first.weighted, first.features, first.count) == (True, 3, 0)


def test_a_graph_is_carried_over_without_writing_it(tmp_path: Path) -> None:
    csr = make_csr(weighted=True, features=0)
    graph = keep(tmp_path, csr)
    for key in (OTHER, "d" * 32):
        before = set(tmp_path.rglob("*"))
        store = replace(graph.kept.store, key=key)
        with writer_of(store) as writer:
            record = refer_to(writer, NAME, graph.kept)
            assert record.sealing().result() == ""
        new = [path for path in set(tmp_path.rglob("*")) - before if path.is_file()]
        assert [path.name for path in new] == [f"{NAME}.seal.json"]
        graph = open_graph(Kept(store, record.seal), SOURCES, ROWS)
        assert_equal(graph.rows(0, ROWS), csr)
    # Back where it was written: its blocks are its own again.
    with writer_of(replace(graph.kept.store, key=KEY)) as writer:
        own = refer_to(writer, NAME, graph.kept)
    assert {block.key for tensor in own.seal.tensors for block in tensor.blocks} == {""}


@pytest.mark.parametrize("weighted", [False, True])
def test_edges_that_have_moved_are_carried_over_beside_it(weighted: bool, tmp_path: Path) -> None:
    graph = keep(tmp_path, sorted_csr(weighted=weighted))
    whole = graph.rows(0, ROWS)
    words = np.stack([whole.row_ids().numpy().astype(np.int32), whole.cols.numpy()], axis=1)
    if whole.weights is not None:
        words = np.concatenate([words, whole.weights.numpy().view(np.int32)[:, None]], axis=1)
    came = words[[3, 3, 9]].copy()
    came[:, 0] = [5, 5, ROWS - 1]
    for key, gone in ((OTHER, words[:2]), ("d" * 32, words[7:8])):
        more = MovedEdges(gone, came)
        after = graph.after(more, 41, [EdgePart("p", 41, 0, 5)])
        expected = patched(graph.rows(0, ROWS), SOURCES, more)
        with writer_of(replace(graph.kept.store, key=key)) as writer:
            record = refer_to(writer, NAME, after.kept, after.moved)
            assert record.sealing().result() == ""
        again = open_graph(Kept(writer.store, record.seal), SOURCES, ROWS)
        assert_equal(again.rows(0, ROWS), expected)
        assert again.count == expected.nnz == graph.count + 3 - len(gone)
        assert again.edges(0).histogram.tolist() == after.histogram.tolist()
        assert (again.known.rows, again.known.parts) == (41, (EdgePart("p", 41, 0, 5),))
        for first, last in [(0, 1), (5, 6), (4, 300), (ROWS - 1, ROWS)]:
            assert_equal(again.rows(first, last), expected.slice(first, last))
        wanted = np.arange(ROWS) % 5 == 0
        some = again.some(wanted)
        assert some.indptr.diff()[~wanted].sum() == 0
        for row in np.flatnonzero(wanted).tolist():
            assert_equal(some.slice(row, row + 1), expected.slice(row, row + 1))
        graph = again


def sorted_csr(*, weighted: bool) -> Csr:
    """As graphs that are built: sources of a row ascending, and weights of equal ones."""
    csr = make_csr(weighted=weighted, features=0)
    weights = csr.weights if csr.weights is not None else torch.zeros(csr.nnz)
    order = np.lexsort([weights.numpy(), csr.cols.numpy(), csr.row_ids().numpy()])
    ordered = None if csr.weights is None else weights[order]
    return Csr(0, csr.indptr, csr.cols[order], ordered)


def test_a_patch_that_does_not_fit_is_damage(tmp_path: Path) -> None:
    graph = keep(tmp_path, sorted_csr(weighted=False))
    more = MovedEdges(np.array([[0, 89]] * 300, np.int32), np.empty((0, 2), np.int32))
    with pytest.raises(Damaged, match="were not in the graph"):
        graph.after(more, 1, []).rows(0, ROWS)


def test_blocks_of_an_earlier_run_stay_where_another_attempt_seals_first(tmp_path: Path) -> None:
    csr = make_csr(weighted=False, features=0)
    graph = keep(tmp_path, csr)
    with writer_of(replace(graph.kept.store, version="20261127T180000Z-3fa9c1")) as writer:
        assert refer_to(writer, NAME, graph.kept).sealing().result() == ""
    assert_equal(graph.rows(0, ROWS), csr)


@pytest.mark.parametrize("part", range(5))
def test_damage_is_noticed(part: int, tmp_path: Path) -> None:
    csr = make_csr(weighted=True, features=1)
    graph = keep(tmp_path, csr)
    block = next(tmp_path.rglob(f"{NAME}-{part:03}-*"))
    data = bytearray(block.read_bytes())
    data[0] ^= 1
    block.write_bytes(data)
    with pytest.raises(Damaged, match="does not match its checksum"):
        open_graph(graph.kept, SOURCES, ROWS).rows(0, ROWS)


@pytest.mark.parametrize(("sources", "rows"), [(2**31, ROWS), (SOURCES, ROWS + 1), (SOURCES, 9)])
def test_a_graph_of_other_nodes_is_refused(sources: int, rows: int, tmp_path: Path) -> None:
    graph = keep(tmp_path, make_csr(weighted=False, features=0))
    with pytest.raises(Damaged, match="graph"):
        open_graph(graph.kept, sources, rows)


def test_a_row_with_too_many_edges_is_not_kept(tmp_path: Path) -> None:
    csr = Csr(0, torch.tensor([0, 2**31]), torch.empty(1, dtype=torch.int32).expand(2**31))
    exchange = Exchange(Grid(GridShape.of(1, 1), 0), torch.device("cpu"), CountingRecorder())
    store = LayerStore(open_storage(None), tmp_path.as_uri(), KEY, VERSION, on_one_machine=True)
    read = ReadEdges(np.ones(1, np.int64), 1, None)
    with writer_of(store) as writer:
        ranges = RowRanges((0, 1), 1)
        record = write_graph(exchange, writer, NAME, "a:b:c", csr, ranges, read)
    assert record.why == "a node of a:b:c has 2^31 in-edges or more"
    assert not list(tmp_path.iterdir())
