"""Ranks of one host read each other's tensors where they stand, and give the memory back."""

from __future__ import annotations

import os
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from embertide.facts.telemetry.memory import allocated_bytes
from embertide.facts.telemetry.recorder import CountingRecorder
from embertide.facts.telemetry.report import Traffic
from embertide.graph import landing
from embertide.graph.directory import look_up, look_up_in_place
from embertide.graph.exchange import Exchange
from embertide.graph.in_place import SPAN_ROWS, WindowRows, shared
from embertide.graph.landing import RowProduct, land_in_place
from embertide.grid import ColumnSlices, RowRanges
from embertide.kernels import memory, native
from embertide.kernels.epilogue import Epilogue
from embertide.launch.worker import is_lost_peer
from embertide.layouts import Loaded
from embertide.program.steps import Aggregate, Linear, Message, PairAttend, Program, tensors
from tests.support.catalogue import catalogue
from tests.support.ranks import on_grid
from tests.support.tasks import embed_all
from tests.support.world import (
    NODES,
    Rank,
    loaded_rows,
    make_features,
    make_graph,
    make_job,
)

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(native.lib is None, reason="only native kernels map memory"),
]

MIB = 1 << 20
COUNTS = (3, 0, 5)
"""Rows of each rank; one has none."""


def rows_of(rank: int, width: int) -> torch.Tensor:
    """[n, width] that no other rank has."""
    return torch.arange(COUNTS[rank] * width).view(COUNTS[rank], width) + 1000.0 * rank


def _look(exchange: Exchange) -> list[list[list[float]]]:
    """Every rank's rows as this one sees them: of an odd width, and factors beside them."""
    channel, me = exchange.channel("world", "test"), exchange.grid.rank
    assert channel.in_place
    window = WindowRows(np.cumsum([0, *COUNTS]))
    # Columns of a wider tensor: shown as a copy.
    mine, scale = rows_of(me, 9)[:, 2:9], torch.full((COUNTS[me],), float(me))
    with shared(channel, [mine, scale]) as (rows, factors):
        seen, scales = rows.window(window), factors.window(window)
        nodes = torch.arange(sum(COUNTS), dtype=torch.int32)
        at = window.of_nodes(nodes).long()
        assert at.tolist() == [0, 1, 2, *range(SPAN_ROWS, SPAN_ROWS + 5)]
        assert scales[at].tolist() == [0.0] * 3 + [2.0] * 5
        places = torch.tensor([[2, 4], [0, 1], [2, 0]], dtype=torch.int32)
        assert window.of_places(places).tolist() == [SPAN_ROWS + 4, 1, SPAN_ROWS]
        assert window.of_places(places.long()).dtype == torch.int32
        copy = window.copy(seen)
        return [seen[at].tolist(), copy[at].tolist(), rows.of(2, 7).tolist()]


@pytest.mark.tier(1)
def test_rows_are_read_where_they_stand() -> None:
    whole = torch.cat([rows_of(rank, 9)[:, 2:9] for rank in range(3)]).tolist()
    for seen, copy, last in on_grid(3, 1, _look):
        assert seen == copy == whole
        assert last == rows_of(2, 9)[:, 2:9].tolist()


def _look_up(exchange: Exchange) -> tuple[list[float], list[float]]:
    """Values of nodes of all ranks, asked for and read in place."""
    channel, me = exchange.channel("world", "test"), exchange.grid.rank
    ranges = RowRanges((0, 3, 3, 8), 1)
    values = torch.arange(8.0)[slice(*ranges.worker(me))]
    nodes = torch.tensor([7, 0, 2, 5 - me, 7])
    asked = look_up(channel, ranges, values, nodes)
    return asked.tolist(), look_up_in_place(channel, ranges, values, nodes).tolist()


def test_tables_are_read_where_they_stand() -> None:
    for rank, (asked, seen) in enumerate(on_grid(3, 1, _look_up)):
        assert asked == seen == [7, 0, 2, 5 - rank, 7]


def _sum_first(exchange: Exchange) -> int:
    """Rows of a layer of GCN as wide as its features, of which no product may go to its owner."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a product was made before the sum")

    program = Program(
        steps=(
            Linear(out="h", layer=0, x="x", weight="w"),
            Aggregate(out="a", layer=0, x="h", norm="both"),
        ),
        params={"w": torch.eye(8)},
        widths={"x": 8, "h": 8, "a": 8},
        layers=1,
        results={"": "a"},
    )
    rank, usual = Rank(exchange, make_graph(), make_job()), tensors.land_in_place
    tensors.land_in_place = refuse
    try:
        return len(rank.embed(program, make_features(8)))
    finally:
        tensors.land_in_place = usual


@pytest.mark.parametrize("grid", [(3, 1), (1, 3), (3, 2)])
def test_features_are_summed_where_they_were_loaded(grid: tuple[int, int]) -> None:
    assert sum(on_grid(*grid, _sum_first)) == NODES


def _land(exchange: Exchange) -> list[float]:
    """Largest differences of landing in place: as rows, as a tile, and added to what is there."""
    # So that there are several pieces of each kind.
    landing.LANDED_ROWS = 3
    world, grid = exchange.channel("world", "test"), exchange.grid
    ranges = RowRanges((0, *range(8, 8 * grid.graph, 8), 8 * grid.graph + 5), grid.feature)
    generator = torch.Generator().manual_seed(3)
    nodes = torch.randperm(ranges.nodes, generator=generator)
    features = torch.randn(ranges.nodes, 9, generator=generator)
    # The last rank loads none; each has an order of its own.
    cuts = [0, *(ranges.nodes * i // (grid.world - 1) for i in range(1, grid.world)), ranges.nodes]
    mine = nodes[cuts[grid.rank] : cuts[grid.rank + 1]]
    where = torch.empty(ranges.nodes, 2, dtype=torch.int32)
    for rank, (first, last) in enumerate(pairwise(cuts)):
        where[nodes[first:last], 0] = rank
        where[nodes[first:last], 1] = torch.arange(last - first, dtype=torch.int32)
    loaded, own = Loaded(mine, features[mine]), slice(*ranges.worker(grid.rank))
    weight, bias = torch.randn(7, 9, generator=generator), torch.randn(7, generator=generator)
    product = RowProduct(weight, Epilogue(bias, "relu"))
    landed = partial(land_in_place, world, loaded, where[own])
    exact = (features.double() @ weight.double().T + bias).relu()
    onto = torch.ones(len(where[own]), 7)
    added = (features[own].double() @ weight.double().T + bias + 1).relu()
    part, columns = slice(*ranges.partition(grid.p)), ColumnSlices(7, grid.feature)
    tile = landed(product, layout="tile", width=7).data
    same = landed(None, layout="rows", width=9).data
    return [
        float((tile - exact[part, slice(*columns.bounds(grid.m))]).abs().max()),
        float((landed(product, layout="rows", width=7).data - exact[own]).abs().max()),
        float((landed(product, layout="rows", width=7, onto=onto).data - added).abs().max()),
        float((same - features[own]).abs().max()),
    ]


@pytest.mark.parametrize("grid", [(3, 1), (1, 3)])
def test_loaded_rows_are_read_where_they_stand(grid: tuple[int, int]) -> None:
    for of_product, of_rows, added, same in on_grid(*grid, _land):
        assert max(of_product, of_rows, added) < 1e-5
        assert same == 0.0


def _show_pieces(exchange: Exchange) -> tuple[int, float]:
    """A tensor on pages that smaller ones left: of how many parts, and what its peer reads."""
    channel, me = exchange.channel("world", "test"), exchange.grid.rank
    smaller = [memory.empty((12 * MIB // 4,)).fill_(9) for _ in range(3)]
    del smaller
    before = allocated_bytes()
    tensor = memory.empty((32 * MIB // 4, 1))
    assert allocated_bytes() - before < MIB
    torch.arange(len(tensor), out=tensor.view(-1)).add_(me)
    with shared(channel, [tensor[MIB:]]) as (seen,):
        theirs = seen.of(1 - me, 1)
        expected = torch.arange(MIB, len(tensor)).view(-1, 1) + 1.0 - me
        return len(seen.places[me]), float((theirs - expected).abs().max())


def test_a_tensor_may_be_several_parts_of_its_file() -> None:
    for parts, error in on_grid(2, 1, _show_pieces):
        assert parts == 3
        assert error == 0.0


def _change(exchange: Exchange) -> list[float]:
    """A tensor that its owner changes as soon as it may, read several times."""
    channel, found = exchange.channel("world", "test"), []
    tensor = memory.empty((20 * MIB // 4, 1))
    for turn in range(3):
        tensor.fill_(turn + 10 * exchange.grid.rank)
        with shared(channel, [tensor]) as (seen,):
            theirs = seen.of(1 - exchange.grid.rank, 1)
            assert float(theirs.min()) == float(theirs.max())
            found.append(float(theirs[-1]))
    return found


def test_what_is_shown_changes_only_after_all_have_read_it() -> None:
    assert on_grid(2, 1, _change) == [[10.0, 11.0, 12.0], [0.0, 1.0, 2.0]]


def _hold(exchange: Exchange) -> list[int]:
    """MiB that a shared tensor takes: while it is there, as the peer maps it, and after."""
    channel, before = exchange.channel("world", "test"), allocated_bytes()
    tensor = memory.empty((64 * MIB // 4, 1))
    held = [allocated_bytes() - before]
    with shared(channel, [tensor]) as (seen,):
        seen.of(1 - exchange.grid.rank, 1).sum()
        held.append(allocated_bytes() - before)
    del tensor, seen
    memory.release_idle()
    held.append(allocated_bytes() - before)
    return [size // MIB for size in held]


def test_shared_memory_counts_as_its_owners_and_goes_back() -> None:
    for alone, mapped, after in on_grid(2, 1, _hold):
        assert 64 <= alone < 72
        assert 64 <= mapped < 72
        assert after < 8


def _lose(exchange: Exchange) -> str | None:
    if exchange.grid.rank == 1:
        exchange.links[0]._socket.close()
        return None
    channel = exchange.channel("world", "test")
    try:
        with shared(channel, [torch.ones(4, 1)]) as (seen,):
            return f"not told: {seen}"
    except Exception as error:
        return "lost" if is_lost_peer(error) else str(error)


def test_a_lost_peer_is_told() -> None:
    assert on_grid(2, 1, _lose)[0] == "lost"


def _fork(exchange: Exchange) -> bool:
    """A process that is forked shares nothing, and frees nothing of ours."""
    tensor = memory.empty((16 * MIB // 4,)).fill_(1)
    child = os.fork()
    if child == 0:
        own = memory.empty((16 * MIB // 4,)).fill_(2)
        private = not native.lib.place_in_file(own.data_ptr(), own.nbytes)
        del tensor, own
        memory.release_idle()
        os._exit(0 if private else 1)
    _, status = os.waitpid(child, 0)
    return status == 0 and float(tensor.min()) == 1.0


def test_a_forked_process_has_memory_of_its_own() -> None:
    assert on_grid(2, 1, _fork) == [True, True]


def test_runs_and_grids_give_the_same_bits() -> None:
    """Sums go over all non-zeros at once, in the order of the graph, whoever is faster; where a
    grid has slices, whole rows of a GCN are summed and multiplied all the same, and those of a GAT
    whose slices have whole heads."""
    known = catalogue()
    cases = [next(iter(known.values())), known["pyg gcn-narrow-improved"], known["pyg gat-heads"]]
    graphs = {(case.kind, case.weighted): case.graph for case in cases}
    programs = [(case.program, case.kind, case.weighted) for case in cases]
    first, again, slices = (
        [
            np.concatenate(of)
            for of in zip(*on_grid(*grid, embed_all, graphs, programs), strict=True)
        ]
        for grid in ((3, 1), (3, 1), (1, 3))
    )
    assert all(map(np.array_equal, first, again))
    assert all(map(np.array_equal, first[1:], slices[1:]))


def _count_reads(exchange: Exchange, program: Program) -> tuple[RowRanges, list[Traffic]]:
    """Row ranges, and what the layers moved or read in place."""
    rank = Rank(exchange, make_graph(), make_job())
    exchange.recorder = recorder = CountingRecorder()
    rank.embed(program, make_features(6))
    return rank.ranges, [item for item in recorder.traffic() if item.layer >= 0]


@pytest.mark.parametrize(("p", "m"), [(3, 1), (1, 3)])
def test_what_is_read_in_place_counts_as_that_and_nothing_as_sent(p: int, m: int) -> None:
    """A row of another worker once for each edge that reads it, with its factor; none moves."""
    program = Program(
        steps=(
            Linear(out="h", layer=0, x="x", weight="w"),
            Aggregate(out="a", layer=0, x="h", norm="both"),
            Linear(out="i", layer=1, x="a", weight="v"),
            Aggregate(out="o", layer=1, x="i", norm="both"),
        ),
        params={"w": torch.eye(4, 6), "v": torch.eye(4)},
        widths={"x": 6, "h": 4, "a": 4, "i": 4, "o": 4},
        layers=2,
        results={"": "o"},
    )
    graph, features = make_graph(), 6
    for rank, (ranges, traffic) in enumerate(on_grid(p, m, _count_reads, program)):
        first, last = ranges.worker(rank)
        into = (graph.dst >= first) & (graph.dst < last)
        remote = int((into & ((graph.src < first) | (graph.src >= last))).sum())
        read = {(i.axis, i.primitive, i.layer): i.bytes_read_in_place for i in traffic}
        assert read["graph", "spmm", 1] == remote * 4 * 4
        assert sum(item.bytes_sent + item.messages + item.groups for item in traffic) == 0
        own = set(loaded_rows(rank, p * m, NODES).tolist())
        landed = sum(node not in own for node in range(first, last))
        assert read["world", "features", 0] == landed * 4 * features
        # Products of loaded features have no factors yet.
        assert read["graph", "spmm", 0] == remote * 4 * (4 + 1)


def test_messages_have_their_edges_behind_attention_that_only_counts_them() -> None:
    weight = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    steps = (
        Linear(out="a", layer=0, x="x", weight="w"),
        PairAttend(out="p", layer=0, x="a", key="a", query="a", heads=2, kind="dot"),
        Message(out="m", layer=0, x="p", lines=("out = relu(s)",)),
    )
    program = Program(
        steps=steps,
        params={"w": weight},
        widths={"x": 6, "a": 8, "p": 8, "m": 8},
        layers=1,
        results={"": "m"},
    )
    cases = {("directed", False): make_graph(weighted=False)}, [(program, "directed", False)]
    alone, shared = (
        np.concatenate([found for (found,) in on_grid(*grid, embed_all, *cases)])
        for grid in ((1, 1), (3, 1))
    )
    assert np.abs(alone).max() > 0.1
    np.testing.assert_allclose(shared, alone, atol=1e-5)
