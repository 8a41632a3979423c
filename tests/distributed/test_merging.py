"""Groups that travel several to a message: the same bits and bytes, in fewer messages."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Any

import numpy as np
import pytest
import torch

from embertide.facts.telemetry.recorder import Label
from embertide.program.steps import Aggregate, Attend, HeadDot, Linear, PairAttend, Program, Step
from tests.support.ranks import on_grid
from tests.support.tasks import Totals, merge_groups
from tests.support.world import make_graph

pytestmark = pytest.mark.distributed

WIDTH = 12
MOST = 4


def program(*steps: Step) -> Program:
    """All tensors have 12 columns but scores, which have 3."""
    g = torch.Generator().manual_seed(2)
    widths = {step.out: 3 if isinstance(step, HeadDot) else WIDTH for step in steps}
    params = {"v": torch.randn(3, 4, generator=g), "w": torch.randn(WIDTH, WIDTH, generator=g)}
    return Program(
        steps=steps,
        params=params,
        widths={"x": WIDTH, **widths},
        layers=steps[-1].layer + 1,
        results={"": steps[-1].out},
    )


def layers(number: int) -> list[Step]:
    """Sums one after the other, of a product."""
    sums = [
        Aggregate(out=f"a{at + 1}", layer=at, x="h" if at == 0 else f"a{at}", norm="in")
        for at in range(number)
    ]
    return [Linear(out="h", layer=0, x="x", weight="w"), *sums]


def attention(layer: int, x: str) -> list[Step]:
    """A layer of additive scores, then one of pair scores."""
    scores, sums, out = f"l{layer}", f"o{layer}", f"p{layer}"
    return [
        HeadDot(out=scores, layer=layer, x=x, vector="v", heads=3),
        Attend(out=sums, layer=layer, x=x, source=scores, target=scores, heads=3),
        PairAttend(out=out, layer=layer + 1, x=sums, key=sums, query=sums, heads=3, kind="dot"),
    ]


PROGRAMS = {
    "sums": program(*layers(3)),
    "attention": program(
        Linear(out="h", layer=0, x="x", weight="w"), *attention(0, "h"), *attention(2, "p0")
    ),
}


@pytest.fixture(scope="module", params=[(3, 1), (2, 2)], ids=str)
def ranks(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return on_grid(*request.param, merge_groups, make_graph(), PROGRAMS, MOST)


def messages(totals: Totals) -> dict[tuple[str, str, int], list[int]]:
    """The first groups of the messages received, by axis, primitive and layer."""
    found: dict[tuple[str, str, int], list[int]] = {}
    for label, (_, received) in totals.items():
        if received and label.group:
            found.setdefault((label.axis, label.primitive, label.layer), []).append(label.group)
    return {key: sorted(groups) for key, groups in found.items()}


def bytes_of(totals: Totals) -> Counter[tuple[str, str, int]]:
    """Bytes received by axis, primitive and layer."""
    found = Counter[tuple[str, str, int]]()
    for label, (_, received) in totals.items():
        found[label.axis, label.primitive, label.layer] += received
    return found


def tuned(totals: Totals) -> dict[Label, tuple[int, int]]:
    return {label: moved for label, moved in totals.items() if label.primitive == "tuning"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_and_bytes_do_not_depend_on_it(ranks: list[dict[str, Any]], name: str) -> None:
    for found in ranks:
        (alone, merged), (before, after), _ = found[name]
        np.testing.assert_array_equal(merged, alone)
        rows = {label: moved for label, moved in after.items() if label.primitive != "tuning"}
        assert bytes_of(rows) == bytes_of(before)


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_ranks_choose_the_same(ranks: list[dict[str, Any]], name: str) -> None:
    chosen = [found[name][2] for found in ranks]
    primitives = {"sums": ["spmm"], "attention": ["scalars", "sddmm", "spmm"]}[name]
    assert sorted(primitive for _, primitive in chosen[0]) == primitives
    for axis, primitive in chosen[0]:
        # The graph axes of two column slices are apart, and choose each for itself.
        apart = 2 if axis == "graph" and len(ranks) == 4 else 1
        for slice_ in range(apart):
            assert len({one[axis, primitive] for one in chosen[slice_::apart]}) == 1
    assert {each for one in chosen for each in one.values()} <= {1, 2, MOST}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_use_tries_and_later_ones_keep(ranks: list[dict[str, Any]], name: str) -> None:
    """Two messages of one group come under way before any is timed; then three of each number."""
    tries = [1, 2, 3, 4, 5, 6, 8, 10, *range(12, 100, MOST)]
    for found in ranks:
        _, (before, after), chosen = found[name]
        groups, came = messages(before), messages(after)
        first = {key: min(layer for *rest, layer in groups if tuple(rest) == key) for key in chosen}
        for (axis, primitive, layer), firsts in came.items():
            if (axis, primitive) not in chosen:
                continue
            count = max(groups[axis, primitive, layer])
            if layer == first[axis, primitive]:
                assert firsts == [at for at in tries if at <= count]
                assert count > 8
            else:
                each = chosen[axis, primitive]
                assert firsts == list(range(1, count + 1, each))
                assert len(firsts) == ceil(count / each)


def test_the_choice_costs_what_is_documented(ranks: list[dict[str, Any]]) -> None:
    """8 bytes, and 16 for each of the numbers 1, 2 and 4, to every peer; once a primitive."""
    for found in ranks:
        for name in PROGRAMS:
            _, (before, after), _ = found[name]
            assert tuned(before) == {}
            for label, moved in tuned(after).items():
                peers = {"graph": 2, "world": 2}[label.axis]
                if len(ranks) == 4:
                    peers = {"graph": 1, "world": 3}[label.axis]
                assert moved == (peers * 56, peers * 56)
            layers = sorted(label.layer for label in tuned(after))
            # The second use of sums; of sums, additive scores and pair scores.
            assert layers == {"sums": [1], "attention": [1, 2, 3]}[name]
