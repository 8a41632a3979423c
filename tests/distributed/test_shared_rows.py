"""Rows that several relations read travel once for all: every byte, by ``docs/traffic.md``."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import torch

from embertide.grid import ColumnSlices, Grid, RowRanges
from embertide.models.read import read_files
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.tracing.export import export_module
from embertide.tracing.record.graphs import GraphTypes
from tests.support.models import Files, shake
from tests.support.plans import order_steps
from tests.support.pyg import pyg
from tests.support.ranks import on_grid
from tests.support.sharing_programs import HEADS, WIDTH, additive, messages, pairs, read
from tests.support.typed_programs import BUYS, FOLLOWS, NEVER, OF
from tests.support.typed_world import WIDTHS, Sent, count_each, loaded_by, make_edges

pytestmark = pytest.mark.distributed

GROUPS = {"user": (BUYS, FOLLOWS), "tag": (OF, NEVER)}
"""Source type -> the relations that read its rows together; the last has no edges."""
Key = tuple[str, str]
"""Primitive and relation."""


class Formulas:
    """What one rank receives."""

    def __init__(self, grid: Grid, ranges: dict[str, RowRanges]) -> None:
        self.grid, self.ranges = grid, ranges
        self.found: Counter[Key] = Counter()

    def sources(self, names: tuple[str, ...], rank: int, *, pairs: bool = False) -> set[int]:
        """Unique sources of edges into a rank's partition, with ``pairs`` into its sub-range."""
        found: set[int] = set()
        for name in names:
            first, last = self.rows(name.split(":")[2], rank, pairs=pairs)
            edges = make_edges()["has" if name == OF else name.split(":")[1]]
            src, dst = (edges.dst, edges.src) if name == OF else (edges.src, edges.dst)
            found |= set(src[(dst >= first) & (dst < last)].tolist())
        return found

    def rows(self, of_type: str, rank: int, *, pairs: bool) -> tuple[int, int]:
        """Of a type, those of a rank's partition, with ``pairs`` of its sub-range."""
        ranges = self.ranges[of_type]
        return ranges.worker(rank) if pairs else ranges.partition(rank // self.grid.feature)

    def ask(self, of_type: str, *, pairs: bool) -> int:
        """U, with ``pairs`` U', of a group of relations; adds what finding them takes."""
        members = self.grid.axis("world" if pairs else "graph").ranks
        own = self.rows(of_type, self.grid.rank, pairs=pairs)
        if len(members) > 1:
            self.found["ids", "several"] += 8 * len(members) * (len(members) - 1)
        for other in members:
            if other != self.grid.rank:
                asked = self.sources(GROUPS[of_type], other, pairs=pairs) & set(range(*own))
                self.found["ids", "several"] += min(4 * len(asked), -(-(own[1] - own[0]) // 8))
        return len(self.sources(GROUPS[of_type], self.grid.rank, pairs=pairs) - set(range(*own)))

    def scatter(self, primitive: str, name: str, counts: dict[int, int], heads: int) -> None:
        """Numbers of the other sub-ranges of our partition, one for each of our heads."""
        others = [rank for rank in self.grid.axis("feature").ranks if rank != self.grid.rank]
        self.found[primitive, name] += sum(8 + 4 * heads * counts[rank] for rank in others)

    def nodes(self, of_type: str) -> dict[int, int]:
        """Rank -> n of a type."""
        workers = self.ranges[of_type].workers
        return {rank: last - first for rank, (first, last) in enumerate(pairwise(workers))}

    def edges(self, name: str) -> dict[int, int]:
        """Rank -> e of a relation."""
        edges = make_edges()["has" if name == OF else name.split(":")[1]]
        dst = edges.src if name == OF else edges.dst
        spans = (self.rows(name.split(":")[2], rank, pairs=True) for rank in range(self.grid.world))
        return {rank: int(((dst >= a) & (dst < b)).sum()) for rank, (a, b) in enumerate(spans)}


def heads_of(grid: Grid) -> int:
    """H': two heads are two slices, or those of one."""
    return HEADS // grid.feature


def additive_bytes(f: Formulas) -> None:
    """Scores of all relations and rows of the union; scores of both ends for each relation."""
    heads = heads_of(f.grid)
    for of_type, names in GROUPS.items():
        unique = f.ask(of_type, pairs=False)
        f.found["scalars", "several"] += 4 * unique * heads * len(names)
        f.found["spmm", "several"] += 4 * unique * WIDTH // f.grid.feature
        for name in names:
            for end in (of_type, name.split(":")[2]):
                f.scatter("scalars", name, f.nodes(end), heads)


def pair_bytes(f: Formulas) -> None:
    """Keys and values of the unions; shares for each relation."""
    for of_type, names in GROUPS.items():
        f.found["sddmm", "several"] += 4 * f.ask(of_type, pairs=True) * WIDTH
        # With one partition the values are all there.
        f.found["spmm", "several"] += 4 * f.ask(of_type, pairs=False) * WIDTH // f.grid.feature
        for name in names:
            f.scatter("sddmm", name, f.edges(name), heads_of(f.grid))


def message_bytes(f: Formulas) -> None:
    """Whole rows of the unions."""
    for of_type in GROUPS:
        f.found["sddmm", "several"] += 4 * f.ask(of_type, pairs=True) * WIDTH


def read_bytes(f: Formulas) -> None:
    """Where the unions' features are, which are needed, and the values, from who read them."""
    grid, others = f.grid, f.grid.world - 1
    if grid.graph == 1:
        return  # Rows go to their slices first, once and for no relation in particular.
    for of_type, names in GROUPS.items():
        own = set(range(*f.rows(of_type, grid.rank, pairs=True)))
        loaded = loaded_by(grid.rank, grid.world, of_type)
        needed = [f.sources(names, rank) for rank in range(grid.world)]
        mine = needed.pop(grid.rank)
        columns = ColumnSlices(WIDTHS[of_type], grid.feature).size(grid.m)
        looked_up = 8 * len(mine - own) + sum(4 * len(of & own) for of in needed) + 16 * others
        f.found["features", "several"] += looked_up + 4 * columns * len(mine - loaded)
        asked = sum(len(of & loaded) for of in needed)
        f.found["ids", "several"] += 8 * grid.world * others + 4 * asked


class Transformer(torch.nn.Module):
    """PyG's HGTConv, with two relations out of users and two out of tags."""

    def __init__(self) -> None:
        super().__init__()
        triples = [tuple(name.split(":")) for names in GROUPS.values() for name in names]
        self.conv = pyg.HGTConv(WIDTHS, WIDTH, (list(WIDTHS), triples), HEADS)

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict, edge_index_dict)


def exported() -> Program:
    relations = [name for names in GROUPS.values() for name in names]
    types = GraphTypes(WIDTHS, tuple(relations))
    files = Files()
    export_module(shake(Transformer()), graph=types).write(files, "file:///m")  # type: ignore[arg-type]
    return read_files(files, "file:///m").program()  # type: ignore[arg-type]


PROGRAMS = [
    (additive(), additive_bytes), (pairs(), pair_bytes), (messages(), message_bytes),
    (read(), read_bytes), (exported(), pair_bytes),
]  # fmt: skip
SHARED = ("spmm", "scalars", "sddmm", "ids")


@pytest.mark.parametrize(("p", "m"), [(3, 1), (1, 2), (2, 2)])
def test_rows_that_relations_share_travel_once(p: int, m: int) -> None:
    ordered = [order_steps(one, p * m) for one, _ in PROGRAMS]
    every = on_grid(p, m, count_each, ordered)
    for number, (_, formulas) in enumerate(PROGRAMS):
        for rank, counted in enumerate(every):
            ranges, received = counted[number]
            f = Formulas(Grid(GridShape.of(p, m), rank), ranges)
            formulas(f)
            assert of_primitives(received) == {key: size for key, size in f.found.items() if size}


def of_primitives(received: Sent) -> dict[Key, int]:
    """What was received of rows, scores and numbers of rows, in layer 0 or once for all."""
    found: Counter[Key] = Counter()
    for (primitive, _, relation), size in received.items():
        if primitive in SHARED or (primitive, relation) == ("features", "several"):
            found[primitive, relation] += size
    return dict(found)
