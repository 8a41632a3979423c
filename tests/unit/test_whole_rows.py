"""Which programs workers of one host compute in whole rows, whatever the grid slices."""

from __future__ import annotations

import pytest

from embertide.footprint import GraphSize
from embertide.models.order import order_steps
from embertide.models.whole_rows import in_order_of_one, moves_of_slices
from embertide.spec.grid import GridShape
from embertide.steps import Aggregate, GraphNorm, Linear, Program, Step
from embertide.steps.moves import LoadedRows, Move, WholeRows
from tests.support import sharing_programs
from tests.support.typed_world import WIDTHS

GRIDS = [(2, 1), (1, 2), (2, 2)]


def moves(program: Program, p: int, m: int) -> list[Move] | None:
    """What is counted in place of slices; None where a program stays in them."""
    size = GraphSize(
        nodes=dict.fromkeys([*WIDTHS, ""], 100),
        edges=dict.fromkeys(program.relations, 0),
        grid=GridShape.of(p, m),
        group_bytes=0,
        depth=1,
        in_place=True,
    )
    return moves_of_slices(order_steps(program, p * m), size)


def of_one_type(*steps: Step) -> Program:
    """Twelve columns, of four features: sums go before products on any grid."""
    return Program(
        steps=steps,
        params={},
        widths={"x": 4, "a": 4, "h": 12, "n": 12},
        layers=1,
        results={"": steps[-1].out},
    )


PAIR = (
    Aggregate(out="a", layer=0, x="x"),
    Linear(out="h", layer=0, x="a", weight="w"),
)


@pytest.mark.parametrize(("name", "p", "m"), [("additive", 2, 2), ("pairs", 1, 2), ("pairs", 2, 2)])
def test_relations_that_share_rows_keep_no_program_in_slices(name: str, p: int, m: int) -> None:
    found = moves(getattr(sharing_programs, name)(), p, m)
    assert found is not None
    assert any(len(getattr(move, "together", ())) == 2 for move in found)
    assert any(isinstance(move, WholeRows) for move in found) == (name == "pairs")


@pytest.mark.parametrize(("p", "m"), GRIDS)
def test_features_are_looked_up_for_several_partitions_alone(p: int, m: int) -> None:
    found = moves(of_one_type(*PAIR), p, m)
    assert found is not None
    assert any(isinstance(move, LoadedRows) for move in found) == (p > 1)


@pytest.mark.parametrize(("p", "m"), GRIDS)
def test_statistics_over_all_nodes_keep_a_program_in_slices(p: int, m: int) -> None:
    normed = of_one_type(*PAIR, GraphNorm(out="n", layer=0, x="h", over="columns"))
    assert moves(normed, p, m) is None


def test_heads_in_several_slices_keep_a_program_in_slices() -> None:
    assert moves(sharing_programs.additive(), 1, 3) is None


def test_the_order_is_that_of_one_worker() -> None:
    program = sharing_programs.read()
    assert in_order_of_one(program).steps == order_steps(program, 1).steps
