"""Edges and graphs on disk have the bits of those in memory, whatever they are cut into."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from embertide.engine.stages.csr import sample_layer
from embertide.errors import StorageError
from embertide.graph import edge_log
from embertide.graph.edge_log import EdgeChunk, EdgeLog
from embertide.graph.graph import count_sources
from embertide.graph.sources import Sources, range_places, share_rounds
from embertide.grid import Axis
from embertide.kernels import spilled_sort
from embertide.kernels.block import Block, unpacked
from embertide.kernels.counting import add_weights, count_values
from embertide.kernels.csr import Csr, add_loops, single_loops
from embertide.kernels.cut import cut_by_group, cut_on_disk
from embertide.kernels.edge_sort import EdgeSorter, bucket_count, bucket_shift, count_edges
from embertide.kernels.ids import hash_ids
from embertide.kernels.node_set import NodeSet
from embertide.kernels.scratch import Scratch
from embertide.kernels.segments import carried_by_runs
from embertide.kernels.spilled_csr import SpilledBlock, SpilledCsr, SpilledGroup, SpilledValues
from embertide.kernels.spilled_sort import SpilledEdgeSorter

FIRST, ROWS, NODES, EDGES, FEATURES = 1000, 9000, 30_000, 50_000, 2


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    """Parts and pieces are small, so that there are many."""
    monkeypatch.setattr(spilled_sort, "PART_EDGES", 900)
    monkeypatch.setattr(spilled_sort, "READ_EDGES", 300)
    monkeypatch.setattr(edge_log, "PIECE_EDGES", 1000)
    return Scratch(tmp_path)


def make_chunks(seed: int = 3, *, kind: type = np.int32) -> list[EdgeChunk]:
    """A hub with more edges than a part, rows without edges, duplicates, equal weights, some of
    whose features are equal."""
    g = np.random.default_rng(seed)
    row = (ROWS * g.random(EDGES) ** 3).astype(np.int64)
    row[: EDGES // 10] = 4321
    col = g.integers(0, NODES // 100, EDGES)
    col[EDGES // 2 :] += NODES - NODES // 100
    weight = g.integers(1, 4, EDGES).astype(np.float32)
    features = g.integers(0, 3, (EDGES, FEATURES)).astype(np.float32)
    parts = np.array_split(g.permutation(EDGES), 7)
    return [
        EdgeChunk(col[at].astype(kind), (row[at] + FIRST).astype(kind), weight[at], features[at])
        for at in parts
    ]


def sort(
    chunks: list[EdgeChunk],
    files: Scratch | None,
    *,
    weighted: bool,
    unique: bool,
    featured: bool = False,
) -> Csr:
    """By the disk, or in memory; joined, where it is in parts."""
    shift, counts = bucket_shift(ROWS), np.zeros((1, bucket_count(ROWS)), np.int64)
    for chunk in chunks:
        bounds = np.array([FIRST, FIRST + ROWS], np.int64)
        count_edges(chunk.destination, bounds, shift, counts)
    options = {"first": FIRST, "rows": ROWS, "nodes": NODES, "weighted": weighted}
    options["features"] = FEATURES if featured else 0
    sorter = (
        EdgeSorter(counts[0], shift, **options)
        if files is None
        else SpilledEdgeSorter(files, counts[0], shift, **options)
    )
    for chunk in chunks:
        weight = chunk.weight if weighted else None
        features = chunk.features if featured else None
        sorter.add_chunks([(chunk.destination, chunk.source, weight, features)])
    parts = sorter.parts(remove_duplicates=unique)
    if files is None:
        return next(parts)
    spilled = SpilledCsr.write(files, FIRST, ROWS, parts)
    assert len(spilled.spilled) > 10
    return spilled.read_rows(0, ROWS)


def assert_same(one: Csr, other: Csr) -> None:
    assert one.first == other.first
    assert torch.equal(one.indptr, other.indptr)
    assert one.cols.dtype == other.cols.dtype
    assert torch.equal(one.cols, other.cols)
    for own, same in ((one.weights, other.weights), (one.features, other.features)):
        assert (own is None) == (same is None)
        assert own is None or same is None or torch.equal(own, same)


@pytest.mark.tier(2)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("featured", [False, True])
def test_edges_sorted_by_way_of_the_disk_have_the_bits_of_a_sort_in_memory(
    files: Scratch, weighted: bool, unique: bool, featured: bool
) -> None:
    chunks, how = make_chunks(), {"weighted": weighted, "unique": unique, "featured": featured}
    spilled = sort(chunks, files, **how)
    assert_same(spilled, sort(chunks, None, **how))
    # The files of edges that are not sorted are gone, those of the graph go with it.
    assert files.held == 0


def test_buckets_past_the_rows_are_no_parts(files: Scratch) -> None:
    counts = np.array([1000, 0, 0], np.int64)
    spilled = SpilledEdgeSorter(files, counts, 1, first=0, rows=2, nodes=9, weighted=False)
    spilled.add_keys(np.arange(1000) % 9 + 16 * (np.arange(1000) % 2), None)
    assert [part.rows for part in spilled.parts(remove_duplicates=False)] == [2]


def test_without_edges_there_are_rows(files: Scratch) -> None:
    spilled = SpilledEdgeSorter(
        files, np.zeros(1, np.int64), 0, first=5, rows=1, nodes=9, weighted=True
    )
    (csr,) = spilled.parts(remove_duplicates=False)
    assert (csr.rows, csr.nnz) == (1, 0)


@pytest.fixture
def graphs(files: Scratch) -> tuple[Csr, SpilledCsr]:
    """The same graph in memory and on disk."""
    whole = sort(make_chunks(), None, weighted=True, unique=False, featured=True)
    cuts = [0, 1, 40, 40, 5000, ROWS]
    parts = [whole.slice(a, b) for a, b in pairwise(cuts)]
    return whole, SpilledCsr.write(files, FIRST, ROWS, parts)


@pytest.mark.parametrize(("start", "stop"), [(0, ROWS), (0, 0), (30, 41), (4321, 4322), (1, 9000)])
def test_some_rows_of_a_graph_on_disk(
    graphs: tuple[Csr, SpilledCsr], start: int, stop: int
) -> None:
    whole, spilled = graphs
    assert_same(spilled.read_rows(start, stop), whole.slice(start, stop))


@pytest.mark.parametrize(("start", "stop"), [(0, ROWS), (0, 1), (1, 5000), (5000, ROWS), (40, 40)])
def test_whole_parts_of_a_graph_on_disk_share_its_files(
    graphs: tuple[Csr, SpilledCsr], files: Scratch, start: int, stop: int
) -> None:
    whole, spilled = graphs
    count, own = files.count, spilled.slice(start, stop)
    assert_same(own.read_rows(0, stop - start), whole.without_features().slice(start, stop))
    assert files.count == count


def test_parts_of_no_whole_rows_are_refused(graphs: tuple[Csr, SpilledCsr]) -> None:
    with pytest.raises(AssertionError, match="no whole parts"):
        graphs[1].slice(1, 41)


def test_features_of_some_edges_on_disk(graphs: tuple[Csr, SpilledCsr]) -> None:
    whole, spilled = graphs
    assert whole.features is not None
    assert spilled.features is not None
    for edges in (torch.arange(0), torch.arange(3, whole.nnz, 701), torch.arange(whole.nnz)):
        assert torch.equal(spilled.features.take(edges), whole.features[edges])


def test_a_graph_on_disk_with_other_self_loops(graphs: tuple[Csr, SpilledCsr]) -> None:
    whole, spilled = graphs
    for change in (lambda csr: add_loops(csr, 1.0, more=True), lambda csr: single_loops(csr, 0.5)):
        assert_same(spilled.rewritten(change).read_rows(0, ROWS), change(whole))
    assert_same(spilled.without_weights().read_rows(0, ROWS), whole.without_weights())
    assert_same(spilled.without_features().read_rows(0, ROWS), whole.without_features())


@pytest.mark.parametrize("featured", [False, True])
def test_samples_of_a_graph_on_disk_are_those_of_a_graph_in_memory(
    graphs: tuple[Csr, SpilledCsr], featured: bool
) -> None:
    whole, spilled = (csr if featured else csr.without_features() for csr in graphs)
    keys = hash_ids(np.arange(FIRST, FIRST + ROWS))[:, 0]
    sample = sample_layer(spilled, keys, 3, 5, 1)
    assert sample.nnz < whole.nnz / 2
    assert_same(sample.read_rows(0, ROWS), sample_layer(whole, keys, 3, 5, 1).read_rows(0, ROWS))


def test_edges_on_disk_add_up_at_their_sources_to_the_same_bits(
    graphs: tuple[Csr, SpilledCsr],
) -> None:
    whole, spilled = graphs
    weights = torch.rand(whole.nnz)
    exact = Csr(whole.first, whole.indptr, whole.cols, weights)
    assert isinstance(spilled, SpilledCsr)
    block = Block(None, exact.indptr, exact.cols, exact.weights)
    on_disk = SpilledBlock(spilled.rewritten(lambda part: with_weights(part, exact)))
    sums, same_sums = torch.zeros(NODES), torch.zeros(NODES)
    add_weights(block, sums)
    add_weights(on_disk, same_sums)
    assert torch.equal(sums, same_sums)
    counts, same_counts = (torch.zeros(NODES, dtype=torch.int32) for _ in range(2))
    count_values(block.indices, counts)
    count_sources(on_disk, same_counts)
    assert torch.equal(counts, same_counts)


@pytest.mark.parametrize("limit", [1, 7, 700, EDGES])
def test_runs_of_edges_on_disk_are_those_of_a_graph_in_memory(
    graphs: tuple[Csr, SpilledCsr], limit: int
) -> None:
    whole, spilled = graphs
    block = Block(None, whole.indptr, whole.cols, whole.weights)
    of_both = (block, whole.features), (SpilledBlock(spilled), spilled.features)
    by_runs = (carried_by_runs(of, limit, features) for of, features in of_both)
    # Of all edges one at a time, some are enough.
    for (run, own), (other, read) in islice(zip(*by_runs, strict=True), 300):
        assert replace(run, rows=other.rows, lengths=other.lengths) == other
        assert torch.equal(run.rows, other.rows)
        assert torch.equal(run.lengths, other.lengths)
        for values, same in zip(own, read, strict=True):
            assert values is not None
            assert same is not None
            assert torch.equal(values, same)


@pytest.mark.parametrize("group_rows", [40, 1 << 20])
def test_edges_on_disk_are_cut_into_the_blocks_of_those_in_memory(
    graphs: tuple[Csr, SpilledCsr], files: Scratch, group_rows: int
) -> None:
    whole, spilled = graphs
    members = NodeSet(whole.cols, NODES)
    bounds = np.array([0, NODES // 200, NODES], np.int64)
    counts = np.diff(members.ranks(bounds))
    counts[0] = 0
    cuts, _ = share_rounds(np.array([counts, [0, 0]]), group_rows, 0)
    places = range_places(members, bounds, 0, cuts, group_rows)
    expected = [unpacked(block) for block in cut_by_group(whole, places, edges=True)]
    local, groups = cut_on_disk(spilled, places, edges=True)
    assert len(groups) == len(expected) - 1 == places.groups - 1
    for of_disk, block in zip([local, *groups], expected, strict=True):
        assert of_disk.nnz == block.nnz
        parts = [(span, own) for span, own in of_disk.each() if own.nnz]
        rows = [span.start + ids_of(own) for span, own in parts]
        lengths = torch.cat([own.indptr.diff() for _, own in parts])
        kept = lengths > 0
        has = block.indptr.diff() > 0
        assert torch.equal(torch.cat(rows)[kept], ids_of(block)[has])
        assert torch.equal(lengths[kept].long(), block.indptr.diff()[has].long())
        assert torch.equal(torch.cat([own.indices for _, own in parts]), block.indices)
        weights = [own.weights for _, own in parts if own.weights is not None]
        assert block.weights is not None
        assert torch.equal(torch.cat(weights), block.weights)
        ends = of_disk.ends()
        assert torch.equal(ends.indptr.long(), block.indptr.long())
        assert torch.equal(ids_of(ends), ids_of(block))
    hubs = [(one.hubs, block.hubs) for one, block in zip(groups, expected[1:], strict=True)]
    assert all(torch.equal(one, other) for one, other in hubs)
    # A hub of all edges has few in a small group.
    assert any(len(one) for one, _ in hubs) == (group_rows > NODES)
    assert_in_blocks(sources_of(local, groups), spilled, expected, whole)
    before = files.count
    del of_disk, local, groups
    assert files.count < before


def sources_of(local: SpilledBlock, groups: list[SpilledGroup]) -> Sources:
    """The blocks alone."""
    return Sources(
        axis=Axis("graph", (0,), 0),
        local=local,
        remote=tuple(groups),
        group_rows=1,
        requests={},
        cuts=np.zeros((1, 1), np.int64),
        outputs=ROWS,
    )


def assert_in_blocks(
    sources: Sources, spilled: SpilledCsr, expected: list[Block], whole: Csr
) -> None:
    """Features that are written in the order of blocks are those of the blocks' positions."""
    assert spilled.features is not None
    assert whole.features is not None
    features = sources.in_blocks(spilled.features)
    assert features is sources.in_blocks(spilled.features)
    assert isinstance(features, SpilledValues)
    for of_disk, block in zip([sources.local, *sources.remote], expected, strict=True):
        assert isinstance(of_disk, SpilledBlock | SpilledGroup)
        assert block.edges is not None
        read = torch.cat(list(features.each(of_disk.places())) or [torch.empty(0, FEATURES)])
        assert torch.equal(read, whole.features[block.edges.long()])


def ids_of(block: Block) -> torch.Tensor:
    """[rows] of a block, int64."""
    return torch.arange(block.outputs) if block.rows is None else block.rows.long()


def with_weights(part: Csr, whole: Csr) -> Csr:
    """A part with the weights of the same rows of a whole graph."""
    start = part.first - whole.first
    return whole.slice(start, start + part.rows)


def test_files_of_a_graph_go_with_what_refers_to_them(files: Scratch) -> None:
    csr = sort(make_chunks(), None, weighted=False, unique=False, featured=True)
    spilled = SpilledCsr.write(files, FIRST, ROWS, [csr])
    unweighted = spilled.without_weights()
    del spilled
    assert files.count == 2
    unweighted = unweighted.without_features()
    assert files.count == 1
    assert unweighted.without_columns().spilled == ()
    del unweighted
    assert files.count == 0


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("features", [0, FEATURES])
def test_edges_that_were_written_are_read_piece_by_piece(
    files: Scratch, kind: type, weighted: bool, features: int
) -> None:
    log = EdgeLog(files, np.dtype(kind), weighted=weighted, features=features)
    chunks = make_chunks(kind=kind)
    for chunk in chunks:
        log.add(chunk)
    pieces = log.finish()
    assert len(pieces) == EDGES // 1000
    loaded = [piece.load() for piece in pieces]
    carried = ["weight"] * weighted + ["features"] * bool(features)
    for name in ("source", "destination", *carried):
        written, read = (
            np.concatenate([getattr(chunk, name) for chunk in some]) for some in (chunks, loaded)
        )
        assert read.dtype == written.dtype
        assert np.array_equal(read, written)
    assert np.array_equal(pieces[3].destination, loaded[3].destination)
    turned = pieces[3].turned()
    assert np.array_equal(turned.destination, loaded[3].source)
    other_way = turned.load()
    assert np.array_equal(other_way.source, loaded[3].destination)
    assert np.array_equal(other_way.destination, loaded[3].source)
    if weighted:
        assert np.array_equal(other_way.weight, loaded[3].weight)
    edge_bytes = 2 * np.dtype(kind).itemsize + 4 * weighted + 4 * features
    assert files.held <= edge_log.log_bytes(EDGES, edge_bytes)
    # Who reads them the other way round closes them, too.
    log.shared().close()
    assert files.count > 0
    log.close()
    assert files.count == 0


def test_a_disk_that_cannot_be_read_is_an_error_that_names_the_folder(
    graphs: tuple[Csr, SpilledCsr], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, spilled = graphs

    def broken(*_arguments: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.preadv", broken)
    with pytest.raises(StorageError, match=r"scratch folder .* could not be read \(Input/output"):
        next(iter(spilled.parts()))
