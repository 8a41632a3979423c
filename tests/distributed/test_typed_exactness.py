"""What travels of each relation, and types that do not fit together."""

from __future__ import annotations

from collections import Counter

import pytest

from embertide.errors import ModelError
from embertide.grid import RowRanges
from embertide.program.steps import Aggregate, Elementwise, Step
from tests.support.ranks import on_grid
from tests.support.typed_programs import (
    BUYS,
    FOLLOWS,
    HIDDEN,
    program,
    sharing,
)
from tests.support.typed_world import (
    count_types,
    make_edges,
)

pytestmark = pytest.mark.distributed


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


def sources_of(names: tuple[str, ...], ranges: dict[str, RowRanges], p: int) -> set[int]:
    """The users outside partition ``p`` that relations need there."""
    edges, found = make_edges(), set()
    for name in names:
        _, edge, of_type = name.split(":")
        first, last = ranges[of_type].partition(p)
        inside = (edges[edge].dst >= first) & (edges[edge].dst < last)
        found |= set(edges[edge].src[inside].tolist())
    return found.difference(range(*ranges["user"].partition(p)))


def csr_bytes(name: str, ranges: dict[str, RowRanges], rank: int) -> int:
    """Of a sub-range: 8 for each row and, beside its number, 4 for each edge; 8 with weights."""
    _, edge, of_type = name.split(":")
    given, (first, last) = make_edges()[edge], ranges[of_type].worker(rank)
    count = int(((given.dst >= first) & (given.dst < last)).sum())
    return 8 + 8 * (last - first) + (4 if given.weight is None else 8) * count


@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 2)])
def test_bytes_of_every_relation_are_those_of_the_formulas(p: int, m: int) -> None:
    """Rows travel once for both relations in layer 0, the union of those that either needs; in
    layer 1, where one scales its sources and the other does not, for each of them."""
    for rank, (ranges, received) in enumerate(on_grid(p, m, count_types, sharing())):
        own, peer = rank // m, 1 - rank // m
        others = [m * own + other for other in range(m) if m * own + other != rank]
        expected: Counter[tuple[str, int, str]] = Counter()
        first, last = ranges["user"].partition(own)
        for label, names in (("several", (BUYS, FOLLOWS)), (BUYS, (BUYS,)), (FOLLOWS, (FOLLOWS,))):
            rows, asked = (len(sources_of(names, ranges, at)) for at in (own, peer))
            layer = 0 if label == "several" else 1
            expected["spmm", layer, label] = 4 * HIDDEN // m * rows
            expected["ids", -1, label] = 8 * p + min(4 * asked, -(-(last - first) // 8))
            if label == BUYS:
                expected["degrees", -1, label] = 4 * asked
        for name in (BUYS, FOLLOWS):
            expected["csr", -1, name] = sum(csr_bytes(name, ranges, other) for other in others)
        found = {key: size for key, size in received.items() if key in expected}
        assert found == {key: size for key, size in expected.items() if size}
        named = {relation for *_, relation in received}
        assert named == {"", "several", BUYS, FOLLOWS}
