"""Rows in bfloat16 among several node types: rounded where one type's are, on every grid."""

from __future__ import annotations

import numpy as np
import pytest

from embertide.program.steps import Aggregate, Linear
from tests.support.exact import UNIT, assert_exact, relative_error
from tests.support.plans import order_steps
from tests.support.ranks import on_grid
from tests.support.tiers import by_turns
from tests.support.typed_programs import (
    BUYS,
    FOLLOWS,
    HAS,
    HIDDEN,
    program,
)
from tests.support.typed_world import (
    WIDTHS,
    count_types,
    embed_types,
    expected_of,
    make_typed_features,
)

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2), (3, 1))
SUMS = program(
    [
        Aggregate(out="of_users", layer=0, x="user.x", relation=FOLLOWS),
        Aggregate(out="of_items", layer=0, x="user.x", relation=BUYS, edge_weight=True),
        Aggregate(out="of_tags", layer=0, x="item.x", reduce="max", relation=HAS),
    ],
    {},
    {"of_users": WIDTHS["user"], "of_items": WIDTHS["user"], "of_tags": WIDTHS["item"]},
    {"user": "of_users", "item": "of_items", "tag": "of_tags"},
    1,
)
"""Features as they were read, of which those of users are summed over two relations."""
SENT_ON = program(
    [
        Linear(out="h", layer=0, x="user.x", weight="w"),
        Aggregate(out="items", layer=0, x="h", norm="in", relation=BUYS),
        Aggregate(out="tags", layer=1, x="items", norm="in", relation=HAS),
    ],
    {"w": (HIDDEN, WIDTHS["user"])},
    {"h": HIDDEN, "items": HIDDEN, "tags": HIDDEN},
    {"tag": "tags"},
    2,
)


@pytest.mark.parametrize(("p", "m"), GRIDS)
def test_sums_are_those_of_rounded_rows(p: int, m: int) -> None:
    """With slices, results are also rounded as they become rows."""
    rounded = {name: values.bfloat16().float() for name, values in make_typed_features().items()}
    by_rank = on_grid(p, m, embed_types, [order_steps(SUMS, p * m)], "bfloat16")
    for of_type, expected in expected_of(SUMS, rounded).items():
        found = np.concatenate([answers[0][of_type] for answers in by_rank])
        exact = expected.numpy()
        if m == 1:
            assert_exact(found, exact)
        else:
            assert (np.abs(found - exact) <= UNIT * np.abs(exact) + 1e-5).all()
        assert relative_error(found, expected_of(SUMS)[of_type]) > 1e-4


@pytest.mark.parametrize(
    ("name", "grid"), by_turns(["features", "products"], [(2, 1), (1, 2), (2, 2)])
)
def test_rows_of_every_type_travel_in_half_the_bytes(name: str, grid: tuple[int, int]) -> None:
    p, m = grid
    one = order_steps({"features": SUMS, "products": SENT_ON}[name], p * m)
    whole = on_grid(p, m, count_types, one)
    half = on_grid(p, m, count_types, one, "bfloat16")
    seen = set()
    for (_, of_whole), (_, of_half) in zip(whole, half, strict=True):
        assert of_half.keys() == of_whole.keys()
        for key, size in of_whole.items():
            primitive, layer, relation = key
            if layer < 0 or primitive in ("ids", "features"):
                # Row numbers go with landing rows; of numbers alone all stays.
                assert size / 2 <= of_half[key] <= size
            else:
                assert 2 * of_half[key] == size, key
                seen.add((primitive, relation))
    assert seen or name == "features"
