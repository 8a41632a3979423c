"""Counted bytes equal the formulas of ``docs/traffic.md``; groups are bounded and overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
import torch

from embertide.engine.planning.traffic import tensor_moves
from embertide.facts.telemetry.recorder import Label
from embertide.footprint import GraphSize
from embertide.graph.moves import Conversion, Move, Statistics, TileRows, WholeRows
from embertide.grid import Grid
from embertide.layouts import ROW_TYPES
from embertide.program.steps import (
    Activation,
    Aggregate,
    Attend,
    Concat,
    Elementwise,
    HeadDot,
    Linear,
    PairAttend,
    Program,
    Propagate,
    Step,
)
from embertide.spec.grid import GridShape
from tests.support.formulas import Formulas
from tests.support.plans import in_slices
from tests.support.ranks import on_grid
from tests.support.step_cases import step_cases
from tests.support.step_program import EDGE_FEATURES
from tests.support.tasks import count_traffic, log_events
from tests.support.world import GROUP_BYTES, NODES, make_graph

pytestmark = pytest.mark.distributed

GRIDS = ((2, 2), (3, 1), (1, 3), (3, 2))
GRAPH = make_graph(weighted=True)
FEATURED = make_graph(weighted=True, features=EDGE_FEATURES)
WIDTH = 10


def program(*steps: Step, **widths: int) -> Program:
    """A program with random parameters: ``w`` names [D', D] by their digits, ``v`` is [3, 4]."""
    g = torch.Generator().manual_seed(2)
    params = {"v": torch.randn(3, 4, generator=g)}
    for step in steps:
        if isinstance(step, Linear):
            shape = widths[step.out], widths.get(step.x, WIDTH)
            params[step.weight] = torch.randn(*shape, generator=g)
    return Program(
        steps=steps,
        params=params,
        widths={"x": WIDTH, **widths},
        layers=steps[-1].layer + 1,
        results={"": steps[-1].out},
    )


def attention(heads: int) -> Program:
    """One layer of GAT, 12 columns wide."""
    return program(
        Linear(out="h", layer=0, x="x", weight="w0"),
        HeadDot(out="l", layer=0, x="h", vector="v", heads=heads),
        HeadDot(out="r", layer=0, x="h", vector="v", heads=heads),
        Attend(out="o", layer=0, x="h", source="l", target="r", heads=heads),
        h=12, l=heads, r=heads, o=12,
    )  # fmt: skip


PLANS = {
    "gcn": program(
        Linear(out="h", layer=0, x="x", weight="w0"),
        Aggregate(out="a", layer=0, x="h", norm="both", edge_weight=True),
        Activation(out="b", layer=0, x="a", kind="relu"),
        Linear(out="c", layer=1, x="b", weight="w1"),
        Aggregate(out="d", layer=1, x="c", norm="in"),
        h=7, a=7, b=7, c=9, d=9,
    ),
    "aggregate first": program(
        Aggregate(out="a", layer=0, x="x", norm="both"),
        Linear(out="h", layer=0, x="a", weight="w0"),
        a=WIDTH, h=7,
    ),
    "gat": attention(3),
    "gat of 2 heads": attention(2),
    "dot": program(
        Linear(out="h", layer=0, x="x", weight="w0"),
        Linear(out="q", layer=0, x="x", weight="w1"),
        PairAttend(out="o", layer=0, x="h", key="h", query="q", heads=3, kind="dot"),
        h=12, q=12, o=12,
    ),
    "jumping knowledge": program(
        Linear(out="h", layer=0, x="x", weight="w0"),
        Aggregate(out="a", layer=0, x="h", norm="sym_in"),
        Aggregate(out="b", layer=1, x="a"),
        Elementwise(out="m", layer=1, inputs=("a", "b"), op="max"),
        Concat(out="c", layer=1, inputs=("a", "m")),
        Linear(out="o", layer=1, x="c", weight="w1"),
        h=7, a=7, b=7, m=7, c=14, o=5,
    ),
}  # fmt: skip


def group_rows(name: str, grid: Grid) -> int:
    """Slots per group of tiles."""
    widest = max(PLANS[name].widths.values())
    return GROUP_BYTES // (4 * -(-widest // grid.feature))


def setup(f: Formulas) -> None:
    f.histogram(buckets=NODES)
    f.shuffle(weighted=True)


def gcn(f: Formulas) -> None:
    f.land(0, 7, tile=True, input_width=WIDTH)
    sources = f.tile_sources()
    sources.ids(Label("graph", "ids"))
    sources.degrees()
    rows = group_rows("gcn", f.grid)
    sources.values("graph", "spmm", 0, rows, lambda rank: f.value * f.columns(rank, 7))
    f.ring(1, 7)
    f.back(1, 9)
    sources.values("graph", "spmm", 1, rows, lambda rank: f.value * f.columns(rank, 9))
    f.ring(1, 9)  # the output's rows, at the end of the last layer


def aggregate_first(f: Formulas) -> None:
    if f.grid.graph == 1:
        f.land(0, WIDTH, tile=True, input_width=WIDTH)
        f.ring(0, WIDTH)
        return
    tiles = f.tile_sources()
    tiles.ids(Label("graph", "ids"))
    tiles.degrees()
    label = Label("world", "features", 0)
    f.look_up(label, f.loaded, 4)
    m = f.grid.feature
    f.look_up(label, lambda rank: f.needs(*f.ranges.partition(rank // m)), 8)
    sources = f.loaded_sources()
    sources.ids(Label("world", "ids"))
    rows = group_rows("aggregate first", f.grid)
    sources.values("world", "features", 0, rows, lambda rank: f.value * f.columns(rank, WIDTH))
    f.ring(0, WIDTH)


def gat(name: str, heads: int, f: Formulas) -> None:
    f.land(0, 12, tile=False, input_width=WIDTH, held=4)  # scores are made of it, too
    for _end in ("source", "target"):
        f.scatter_heads(Label("feature", "scalars", 0), f.rows, heads=heads, width=12)
    f.back(0, 12)
    sources = f.tile_sources()
    sources.ids(Label("graph", "ids"))
    rows = group_rows(name, f.grid)
    sources.values("graph", "scalars", 0, rows, lambda rank: 4 * f.heads(rank, heads, 12))
    sources.values("graph", "spmm", 0, rows, lambda rank: f.value * f.columns(rank, 12))
    f.ring(0, 12)


def dot(f: Formulas) -> None:
    f.land(0, 12, tile=False, input_width=WIDTH)
    f.land(0, 12, tile=False, input_width=WIDTH, held=4)  # of targets
    pairs = f.row_sources()
    pairs.ids(Label("world", "ids"))
    pairs.values("world", "sddmm", 0, GROUP_BYTES // (4 * 12), lambda _rank: f.value * 12)
    f.scatter_heads(Label("feature", "sddmm", 0), f.edges, heads=3, width=12)
    f.back(0, 12)
    tiles = f.tile_sources()
    tiles.ids(Label("graph", "ids"))
    rows = group_rows("dot", f.grid)
    tiles.values("graph", "spmm", 0, rows, lambda rank: f.value * f.columns(rank, 12))
    f.ring(0, 12)


def jumping_knowledge(f: Formulas) -> None:
    f.land(0, 7, tile=True, input_width=WIDTH)
    sources = f.tile_sources()
    sources.ids(Label("graph", "ids"))
    rows = group_rows("jumping knowledge", f.grid)
    for layer in (0, 1):
        sources.values("graph", "spmm", layer, rows, lambda rank: f.value * f.columns(rank, 7))
    # The maximum of tiles moves nothing; the parts side by side are rows.
    f.ring(1, 7)
    f.ring(1, 7)


FORMULAS: dict[str, Callable[[Formulas], None]] = {
    "gcn": gcn,
    "aggregate first": aggregate_first,
    "gat": partial(gat, "gat", 3),
    "gat of 2 heads": partial(gat, "gat of 2 heads", 2),
    "dot": dot,
    "jumping knowledge": jumping_knowledge,
}


@pytest.mark.parametrize(
    ("p", "m", "rows"),
    [
        *[(*grid, "float32") for grid in GRIDS],
        pytest.param(2, 2, "bfloat16", marks=pytest.mark.tier(1)),
        (3, 1, "bfloat16"),
    ],
)
def test_bytes_equal_the_formulas(p: int, m: int, rows: str) -> None:
    answers = on_grid(p, m, count_traffic, GRAPH, PLANS, rows)
    grid, ranges = Grid(GridShape.of(p, m)), answers[0][0]
    for name in ("setup", *PLANS):
        value = ROW_TYPES[rows].itemsize
        expected = Formulas(grid, ranges, GRAPH, GROUP_BYTES, value)
        if name == "setup":
            setup(expected)
        else:
            expected.locate()
            expected.csr(weighted=True)
            FORMULAS[name](expected)
        for rank, (_, counted) in enumerate(answers):
            assert counted[name] == expected.bytes_of(rank), f"{name}, rank {rank}"


@pytest.mark.tier(1)
def test_one_worker_moves_nothing() -> None:
    ((_, counted),) = on_grid(1, 1, count_traffic, GRAPH, PLANS)
    assert counted == {name: {} for name in ("setup", *PLANS)}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("depth", [1, 3])
def test_groups_travel_while_others_are_computed(name: str, depth: int) -> None:
    """While a block is computed, exactly the next ``depth`` groups are on their way."""
    for events in on_grid(3, 1, log_events, make_graph(), PLANS[name], depth):
        spmm = [
            (what, label.group)
            for what, label in events
            if label.primitive in ("spmm", "features") and label.layer == 0
        ]
        last = max(group for what, group in spmm if what == "posted")
        assert last >= 3
        flying: set[int] = set()
        for what, group in spmm:
            if what == "posted":
                flying.add(group)
            elif what == "arrived":
                flying.discard(group)
            else:
                assert flying == set(range(group + 1, min(group + depth, last) + 1))


@pytest.mark.parametrize(("p", "m"), [(3, 1), (2, 2)])
def test_no_receive_buffer_is_larger_than_a_group(p: int, m: int) -> None:
    groups = 0
    for _, counted in on_grid(p, m, count_traffic, GRAPH, PLANS):
        for totals in counted.values():
            for label, (_, received) in totals.items():
                if label.primitive in ("spmm", "sddmm", "scalars", "features") and label.group:
                    assert received <= GROUP_BYTES
                    groups = max(groups, label.group)
    assert groups > 3


def moved(f: Formulas, move: Move) -> tuple[tuple[str, str], int]:
    """Axis and primitive of a planned move, and what all ranks receive of it."""
    feature, partitions = f.grid.feature, f.feature_axes()
    match move:
        case Conversion(width=width):
            size = sum(
                f.rows(rank) * (width - f.columns(rank, width)) for rank in range(f.grid.world)
            )
            return ("feature", "gemm"), f.value * size
        case TileRows(columns=columns, primitive=primitive):
            bounds = [f.ranges.partition(rank // feature) for rank, *_ in partitions]
            unique = sum(outside(f, *span) for span in bounds)
            value = f.value if primitive == "spmm" else 4
            return ("graph", primitive), round(value * columns * feature * unique)
        case WholeRows(width=width):
            unique = sum(outside(f, *f.ranges.worker(rank)) for rank in range(f.grid.world))
            return ("world", "sddmm"), f.value * width * unique
        case Statistics(axis=axis, numbers=numbers):
            others = f.grid.axis(axis).size - 1
            return (axis, "statistics"), round(f.grid.world * others * (8 + 8 * numbers))
    return ("", ""), 0


def outside(f: Formulas, start: int, stop: int) -> int:
    """Unique sources of some rows' in-edges that are other rows."""
    return sum(not start <= node < stop for node in f.needs(start, stop))


@pytest.mark.parametrize("rows", ROW_TYPES)
def test_what_a_step_plans_to_move_is_what_it_moves(rows: str) -> None:
    """Of every kind of step, all that moves to the byte but what comes before its rows.

    Features of edges travel once, with their edges, and never again.
    """
    cases = step_cases()
    shape = GridShape.of(2, 2)
    answers = on_grid(2, 2, count_traffic, FEATURED, cases, rows)
    value = ROW_TYPES[rows].itemsize
    formulas = Formulas(Grid(shape), answers[0][0], FEATURED, GROUP_BYTES, value)
    setup(formulas)
    for rank, (_, counted) in enumerate(answers):
        assert counted["setup"] == formulas.bytes_of(rank)
    size = GraphSize(
        nodes={"": NODES},
        edges={"": len(FEATURED.src)},
        grid=shape,
        group_bytes=GROUP_BYTES,
        depth=1,
        row_bytes=value,
    )
    kinds = [("feature", "gemm"), ("graph", "spmm"), ("graph", "scalars"), ("world", "sddmm")]
    formulas = Formulas(Grid(shape), answers[0][0], FEATURED, GROUP_BYTES, value)
    kinds += [(axis, "statistics") for axis in ("feature", "graph", "world")]
    for name, of in cases.items():
        planned, sent = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for move in tensor_moves(in_slices(of, shape), size):
            kind, size_bytes = moved(formulas, move)
            planned[kind] += size_bytes
        for _, counted in answers:
            for label, (_, received) in counted[name].items():
                sent[label.axis, label.primitive] += received
        assert {k: sent[k] for k in kinds} == {k: planned[k] for k in kinds}, name


def test_with_one_partition_nothing_moves_between_sums() -> None:
    """A propagation of ten hops sends what one hop does: to tiles before, to rows behind."""
    plans = {
        str(times): program(
            Linear(out="h", layer=0, x="x", weight="w0"),
            Propagate(out="p", layer=0, x="h", times=times, norm="both", alpha=0.1),
            h=7, p=7,
        )
        for times in (1, 10)
    }  # fmt: skip
    for _, counted in on_grid(1, 3, count_traffic, GRAPH, plans):
        assert counted["10"] == counted["1"]
        found = {(label.axis, label.primitive) for label in counted["10"] if label.layer == 0}
        assert found == {("world", "features"), ("feature", "gemm")}
