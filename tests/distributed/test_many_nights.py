"""Twenty nights that each keep only the rows that have moved, on grids of every kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers.seals import Seal
from embertide.io.versions.layers.sweeping import keys, seals_of
from tests.support.catalogue import catalogue
from tests.support.ranks import on_grid
from tests.support.refreshed import Answer, Day, refresh_cases
from tests.support.tiers import later
from tests.support.world import Graph

pytestmark = pytest.mark.distributed

DAYS, PEOPLE = 20, 240
MODELS = ["pyg example sage", "dgl jk-cat"]
RENAMED = 12
"""The day on which a node goes and another one comes: rows have other places."""


def ring() -> Graph:
    """Each node has in-edges from the three before it, so that changes reach few rows."""
    dst = np.repeat(np.arange(PEOPLE), 3)
    src = (dst - np.tile([1, 2, 3], PEOPLE)) % PEOPLE
    return Graph(src, dst, None, PEOPLE, None)


def days() -> list[Day]:
    """Each day two edges have other sources, and features of a node are others."""
    graph, g, ids = ring(), np.random.default_rng(3), np.arange(PEOPLE)
    every = [Day(graph, ids)]
    for number in range(1, DAYS):
        src = graph.src.copy()
        src[g.choice(len(src), 2, replace=False)] = g.integers(0, PEOPLE - 7, 2)
        graph = replace(graph, src=src)
        if number == RENAMED:
            ids = np.concatenate([np.delete(ids, 30), [250]])
        every.append(Day(graph, ids, moved=(number,)))
    return every


def seals(uri: str) -> dict[str, list[Seal]]:
    """Day -> its seals."""
    storage = open_storage(None)
    every = [seal for key in keys(storage, uri) for seal in seals_of(storage, uri, key)]
    by_day: dict[str, list[Seal]] = {}
    for seal in every:
        by_day.setdefault(seal.version[6:8], []).append(seal)
    return by_day


def written(seal: Seal) -> int:
    """Bytes of the blocks that its run has written."""
    return sum(size for key, block, size in seal.stored() if not block.key and key == seal.key)


@pytest.mark.parametrize(
    ("grid", "names"),
    later(
        [((1, 1), MODELS), ((2, 1), MODELS[:1]), ((1, 2), MODELS[1:]), ((2, 2), MODELS)],
        ((2, 1), MODELS[:1]),
        ((1, 2), MODELS[1:]),
        several=True,
    ),
)
def test_twenty_nights_have_the_bits_of_whole_runs(
    grid: tuple[int, int], names: list[str], tmp_path: Path
) -> None:
    cases = catalogue()
    given = {name: (cases[name].program, False, days()) for name in names}
    by_rank = on_grid(*grid, refresh_cases, given, tmp_path.as_uri(), one_host=True)
    for number, name in enumerate(names):
        for rank in by_rank:
            answers: list[Answer] = rank[name]
            assert [answer.why for answer in answers] == [""] * DAYS
            for answer in answers:
                assert np.array_equal(answer.rows, answer.whole)
        _check_bytes(seals(f"{tmp_path.as_uri()}/{number}"))


def _check_bytes(by_day: dict[str, list[Seal]]) -> None:
    """Most nights write few rows and digests; those on which nodes have other places write all."""
    assert len(by_day) == DAYS
    shares, of_digests = [], []
    for day, of_day in by_day.items():
        layers = [seal for seal in of_day if seal.layer]
        shares.append(sum(map(written, layers)) / sum(seal.size for seal in layers))
        (digests,) = (seal for seal in of_day if not seal.layer)
        of_digests.append(written(digests) / digests.size)
        if day in ("01", f"{RENAMED + 1:02}"):
            assert (shares[-1], of_digests[-1]) == (1, 1)
    assert np.mean(shares) < 0.6
    assert np.mean(of_digests) < 0.25
