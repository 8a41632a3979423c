"""Programs over several node types give, on every grid, what the float64 reference gives.

Those of described models take turns, but with ``--thorough``.
"""

from __future__ import annotations

import numpy as np
import pytest

from embertide.errors import ModelError
from embertide.models.order import order_steps
from embertide.steps import Aggregate, Elementwise, Step
from tests.support.exact import TOLERANCE, relative_error
from tests.support.hetero_programs import described
from tests.support.ranks import on_grid
from tests.support.typed_programs import (
    BUYS,
    HIDDEN,
    attending,
    from_files,
    normed,
    program,
    relational,
    sharing,
)
from tests.support.typed_world import (
    COUNTS,
    count_types,
    embed_types,
    expected_of,
    make_edges,
)

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2), (3, 1))
PROGRAMS = [relational(), attending(), from_files(), sharing(), normed()]


@pytest.mark.parametrize(("p", "m"), GRIDS)
def test_every_type_is_exact(p: int, m: int, pytestconfig: pytest.Config) -> None:
    turns = 1 if pytestconfig.getoption("--thorough") else len(GRIDS)
    programs = [*PROGRAMS, *described(GRIDS.index((p, m)) % turns, turns)]
    ordered = [order_steps(one, p * m) for one in programs]
    by_rank = on_grid(p, m, embed_types, ordered)
    for number, one in enumerate(programs):
        for of_type, expected in expected_of(one).items():
            found = np.concatenate([answers[number][of_type] for answers in by_rank])
            assert len(found) == COUNTS[of_type]
            error = relative_error(found, expected)
            assert error <= TOLERANCE, (number, of_type, error)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (Aggregate(out="o", layer=0, x="item.x", relation=BUYS), "'item', but needs one of 'user'"),
        (
            Aggregate(out="o", layer=0, x="user.x", relation=BUYS, loops="single"),
            "only edges within one type can have them",
        ),
        (Aggregate(out="o", layer=0, x="user.x", relation=BUYS, norm="sym_in"), "norm sym_in"),
        (Elementwise(out="o", layer=0, inputs=("user.x", "tag.x"), op="sum"), "types tag, user"),
    ],
)
def test_types_that_do_not_fit_are_refused(step: Step, says: str) -> None:
    one = program([step], {}, {"o": 7}, {"item": "o"}, 1)
    with pytest.raises(ModelError, match=r"step 'o'") as caught:
        _ = one.types
    assert says in str(caught.value)


@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 2)])
def test_rows_travel_once_for_all_relations_that_sum_them(p: int, m: int) -> None:
    """In layer 0 the union of the rows that two relations need; in layer 1, where one scales its
    sources and the other does not, the rows of each."""
    answers, edges = on_grid(p, m, count_types, sharing()), make_edges()
    for rank, (ranges, received) in enumerate(answers):
        needed = []
        for name, of_type in (("buys", "item"), ("follows", "user")):
            first, last = ranges[of_type].partition(rank // m)
            inside = (edges[name].dst >= first) & (edges[name].dst < last)
            needed.append(set(edges[name].src[inside].tolist()))
        own = set(range(*ranges["user"].partition(rank // m)))
        row = 4 * HIDDEN // m
        assert received["spmm", 0] == row * len((needed[0] | needed[1]) - own)
        assert received["spmm", 1] == row * sum(len(rows - own) for rows in needed)
