"""Non-zeros cut into a local block and groups, against a plain loop, natively and in numpy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embertide.graph.sources import range_places, share_rounds
from embertide.kernels import native
from embertide.kernels.block import Block, PackedBlock, unpacked
from embertide.kernels.csr import Csr
from embertide.kernels.cut import Places, RangePlaces, TablePlaces, cut_by_group
from embertide.kernels.node_set import NodeSet, unpack_bitmap
from embertide.kernels.threads import set_threads

Entry = tuple[int, int, float, int]
"""Output row, source row, weight, position in the CSR."""

RELAXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Csr, int]:
    """A CSR of any sources, and N; sometimes one row has most of the non-zeros."""
    nodes = draw(st.integers(1, 25) | st.just(500))
    degrees = draw(st.lists(st.integers(0, 8) | st.just(90), min_size=1, max_size=12))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    ids = torch.int64 if draw(st.booleans()) else torch.int32
    cols = torch.from_numpy(rng.integers(0, nodes, sum(degrees))).to(ids)
    indptr = torch.tensor(np.concatenate([[0], np.cumsum(degrees)]))
    weights = torch.arange(len(cols)).float() + 0.5 if draw(st.booleans()) else None
    return Csr(0, indptr, cols, weights), nodes


def entries(block: Block) -> list[Entry]:
    lengths = block.indptr.diff()
    rows = torch.arange(len(lengths)) if block.rows is None else block.rows
    row = torch.repeat_interleave(rows, lengths).tolist()
    weight = [1.0] * block.nnz if block.weights is None else block.weights.tolist()
    edges = list(range(block.nnz)) if block.edges is None else block.edges.tolist()
    return list(zip(row, block.indices.tolist(), weight, edges, strict=True))


def check(csr: Csr, places: Places, codes: dict[int, int]) -> None:
    """Blocks against a loop over the non-zeros; ``codes``: slot of each source, or -1 - row."""
    blocks = [unpacked(block) for block in cut_by_group(csr, places, edges=True)]
    expected: list[list[Entry]] = [[] for _ in range(places.groups)]
    for at, (row, col) in enumerate(zip(csr.row_ids().tolist(), csr.cols.tolist(), strict=True)):
        slot = codes[col]
        weight = 1.0 if csr.weights is None else float(csr.weights[at])
        group, index = divmod(slot, places.group_rows)
        entry = (row, -1 - slot if slot < 0 else index, weight, at)
        expected[0 if slot < 0 else group + 1].append(entry)
    assert [entries(block) for block in blocks] == expected
    assert blocks[0].rows is None
    assert len(blocks[0].indptr) == csr.rows + 1
    for block in blocks[1:]:
        assert block.nnz == 0 or block.indptr.diff().min() > 0
        assert len(block.rows) < 2 or block.rows.diff().min() > 0
    plain = map(unpacked, cut_by_group(csr, places, edges=False))
    assert all(block.edges is None for block in plain)


@pytest.mark.usefixtures("kernels")
@RELAXED
@given(graphs(), st.data())
def test_sources_with_slots(case: tuple[Csr, int], data: st.DataObject) -> None:
    csr, nodes = case
    members = NodeSet(csr.cols, nodes)
    sources = sorted(set(csr.cols.tolist()))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    ours = rng.random(len(sources)) < 0.4
    slots = np.empty(len(sources), np.int64)
    slots[ours] = -1 - rng.integers(0, 50, ours.sum())
    slots[~ours] = rng.permutation(int((~ours).sum()))
    group_rows = data.draw(st.integers(1, 70))
    rounds = -(-int((~ours).sum()) // group_rows)
    places = TablePlaces(
        members=members,
        slots=torch.from_numpy(slots).to(csr.cols.dtype),
        rounds=rounds,
        group_rows=group_rows,
    )
    check(csr, places, dict(zip(sources, slots.tolist(), strict=True)))


@pytest.mark.usefixtures("kernels")
@RELAXED
@given(graphs(), st.data())
def test_sources_in_ranges(case: tuple[Csr, int], data: st.DataObject) -> None:
    csr, nodes = case
    cuts = data.draw(st.lists(st.integers(0, nodes), max_size=4))
    bounds = np.array([0, *sorted(cuts), nodes])
    own = data.draw(st.integers(0, len(bounds) - 2))
    group_rows = data.draw(st.integers(1, 70))
    members = NodeSet(csr.cols, nodes)
    counts = np.diff(members.ranks(bounds))
    counts[own] = 0
    wanted = np.tile(counts, (len(counts), 1))
    shares, _ = share_rounds(wanted, group_rows, own)
    places = range_places(members, bounds, own, shares, group_rows)
    codes: dict[int, int] = {}
    sources = sorted(set(csr.cols.tolist()))
    for number in range(places.groups - 1):
        slot = number * group_rows
        for step in range(1, len(counts)):
            holder = (own + step) % len(counts)
            first, last = bounds[holder], bounds[holder + 1]
            held = [c for c in sources if first <= c < last]
            for node in held[shares[holder, number] : shares[holder, number + 1]]:
                codes[node] = slot
                slot += 1
    codes |= {c: -1 - (c - bounds[own]) for c in sources if c not in codes}
    check(csr, places, codes)


@pytest.mark.usefixtures("kernels")
@RELAXED
@given(graphs(), st.data())
def test_sets_of_nodes(case: tuple[Csr, int], data: st.DataObject) -> None:
    csr, nodes = case
    members = NodeSet(csr.cols, nodes)
    sources = sorted(set(csr.cols.tolist()))
    assert members.count == len(sources)
    every = np.arange(nodes + 1)
    assert members.ranks(every).tolist() == np.searchsorted(sources, every).tolist()
    first = data.draw(st.integers(0, nodes))
    last = data.draw(st.integers(first, nodes))
    inside = [s - first for s in sources if first <= s < last]
    assert members.between(first, last).tolist() == inside
    bits = members.bitmap(first, last)
    flags = np.unpackbits(bits.numpy(), bitorder="little")
    assert np.flatnonzero(flags).tolist() == inside
    rows = torch.empty(len(inside), dtype=torch.int32)
    unpack_bitmap(bits, rows)
    assert rows.tolist() == inside


@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 99))
def test_rounds_are_shared_alike_at_both_ends(size: int, group_rows: int, seed: int) -> None:
    wanted = np.random.default_rng(seed).integers(0, 60, (size, size))
    np.fill_diagonal(wanted, 0)
    both = [share_rounds(wanted, group_rows, me) for me in range(size)]
    for me, (cuts, _) in enumerate(both):
        shares = np.diff(cuts, axis=1)
        assert (shares >= 0).all()
        assert (cuts[:, -1] == wanted[me]).all()
        arriving = shares.sum(0)
        assert (arriving[:-1] == group_rows).all()
        for holder in range(size):
            assert both[holder][1][me].tolist() == cuts[holder].tolist()


def test_every_peer_sends_in_every_round() -> None:
    wanted = np.array([[0, 5000, 4000, 1000]] * 4)
    cuts, _ = share_rounds(wanted, 100, 0)
    assert np.diff(cuts[1:], axis=1).min() >= 9


@pytest.mark.usefixtures("kernels")
def test_a_column_that_is_no_source_is_refused() -> None:
    csr = Csr(0, torch.tensor([0, 1]), torch.tensor([2], dtype=torch.int32))
    members = NodeSet(torch.tensor([0], dtype=torch.int32), 3)
    slots = torch.tensor([-1], dtype=torch.int32)
    with pytest.raises(ValueError, match="no source"):
        cut_by_group(
            csr, TablePlaces(members=members, slots=slots, rounds=0, group_rows=1), edges=False
        )


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_sources_that_are_all_ours(kind: torch.dtype) -> None:
    """Then there are no groups."""
    cols = torch.tensor([4, 0, 2, 4], dtype=kind)
    csr = Csr(0, torch.tensor([0, 3, 4]), cols, None)
    members, bounds = NodeSet(cols, 5), np.array([0, 5])
    slots = torch.tensor([-3, -1, -2], dtype=kind)
    table = TablePlaces(members=members, slots=slots, rounds=0, group_rows=3)
    check(csr, table, {0: -3, 2: -1, 4: -2})
    none = np.zeros((1, 1), np.int64)
    places = RangePlaces(
        members=members, bounds=bounds, own=0, cuts=none, before=none[:, :0], group_rows=3
    )
    check(csr, places, {node: -1 - node for node in (0, 2, 4)})


@pytest.mark.usefixtures("kernels")
def test_a_group_may_have_more_rows_than_there_are_slots() -> None:
    cols = torch.tensor([2, 0], dtype=torch.int32)
    csr = Csr(0, torch.tensor([0, 2]), cols, None)
    slots = torch.tensor([1, 0], dtype=torch.int32)
    places = TablePlaces(members=NodeSet(cols, 3), slots=slots, rounds=1, group_rows=5 << 32)
    check(csr, places, {0: 1, 2: 0})


@pytest.mark.skipif(native.lib is None, reason=native.describe())
def test_threads_and_the_fallback_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than one task has, and a hub."""
    rng = np.random.default_rng(1)
    degrees = rng.integers(0, 6, 70_000)
    degrees[40_000] = 100_000
    nodes = 50_000
    cols = torch.from_numpy(rng.integers(0, nodes, degrees.sum()).astype(np.int32))
    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(degrees)]))
    csr = Csr(0, indptr, cols, torch.rand(len(cols)))
    bounds = np.array([0, 20_000, 30_000, nodes])

    def cut(group_rows: int = 3000) -> list[Block | PackedBlock]:
        members = NodeSet(cols, nodes)
        counts = np.diff(members.ranks(bounds))
        counts[1] = 0
        shares, _ = share_rounds(np.tile(counts, (3, 1)), group_rows, 1)
        places = range_places(members, bounds, 1, shares, group_rows)
        return cut_by_group(csr, places, edges=True)

    # Rows have two or three non-zeros in a group of all sources, and one in a small group.
    assert [type(block) for block in cut(nodes)] == [Block, Block]
    assert {type(block) for block in cut()[1:]} == {PackedBlock}
    results = []
    for threads in (1, 3):
        set_threads(threads)
        results.append([unpacked(block) for block in cut()])
    set_threads(0)
    monkeypatch.setattr(native, "lib", None)
    results.append([unpacked(block) for block in cut()])
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            for name in ("rows", "indptr", "indices", "weights", "edges"):
                a, b = getattr(one, name), getattr(two, name)
                assert (a is None and b is None) or torch.equal(a, b), name


@pytest.mark.skipif(native.lib is None, reason=native.describe())
def test_packed_rows_may_be_far_apart() -> None:
    # Of four panels the second has no non-zero, and the last has one row.
    rows = np.array([0, 65_535, 131_072, 131_072, 196_607, 196_608])
    lengths = np.bincount(rows, minlength=196_609)
    cols = torch.tensor([1, 2, 3, 1, 2, 1], dtype=torch.int32)
    csr = Csr(0, torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])), cols, None)
    slots = torch.tensor([0, 1, 2], dtype=torch.int32)
    places = TablePlaces(members=NodeSet(cols, 4), slots=slots, rounds=2, group_rows=2)
    local, *groups = cut_by_group(csr, places, edges=True)
    assert local.nnz == 0
    assert [type(block) for block in groups] == [PackedBlock, PackedBlock]
    assert [[entry[:2] for entry in entries(unpacked(block))] for block in groups] == [
        [(0, 0), (65_535, 1), (131_072, 0), (196_607, 1), (196_608, 0)],
        [(131_072, 0)],
    ]
    first = groups[0]
    assert isinstance(first, PackedBlock)
    with pytest.raises(ValueError, match="panels"):
        replace(first, panels=first.panels[:-1]).unpack()


@pytest.mark.parametrize("marked", [300, 5000], ids=["few-marks", "many-marks"])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_a_set_has_the_nodes_that_were_marked(marked: int, kind: torch.dtype) -> None:
    # Many marks are made in bytes first, and then packed.
    rng = np.random.default_rng(2)
    nodes = rng.integers(0, 1000, marked)
    found = NodeSet([torch.from_numpy(some).to(kind) for some in np.split(nodes, 2)], 1000)
    unique = np.unique(nodes)
    assert found.count == len(unique)
    assert found.between(0, 1000).tolist() == unique.tolist()
    with pytest.raises((ValueError, IndexError)):
        NodeSet(torch.full((marked,), 1400, dtype=kind), 1000)
    with pytest.raises((ValueError, IndexError)):
        NodeSet(torch.full((marked,), -1400, dtype=kind), 1000)
