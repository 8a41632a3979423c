"""Ids found and given back, and edges sampled, are the same on every grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.job_files import node_names
from tests.support.ranks import on_grid
from tests.support.tasks import digest_ids, keep_strings, map_ids, sample_edges
from tests.support.world import NODES, make_graph

pytestmark = pytest.mark.distributed

GRIDS = ((2, 1), (1, 2), (2, 2), (3, 2))


@pytest.mark.tier(1)
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_ids_are_found_and_given_back(kind: str) -> None:
    names = node_names(kind, NODES)
    unknown: list[Any] = [7, -1] if kind == "int64" else ["nobody", "node-"]
    probes = [*names, *unknown, *names[:10]]
    dense_by_grid = []
    for grid in ((1, 1), *GRIDS):
        answers = on_grid(*grid, map_ids, names, kind, probes)
        originals = [name for part, _, _ in answers for name in part]
        keys = np.concatenate([part for _, part, _ in answers])
        dense = answers[0][2]
        assert [originals[i] for i in dense[:NODES]] == names
        assert dense[NODES : NODES + 2].tolist() == [-1, -1]
        assert dense[NODES + 2 :].tolist() == dense[:10].tolist()
        assert len(set(keys.tolist())) == NODES
        for rank, (_, _, found) in enumerate(answers[1:], 1):
            assert found.tolist() == dense[: rank - 1].tolist()
        dense_by_grid.append((dense, keys))
    for dense, keys in dense_by_grid[1:]:
        assert np.array_equal(dense, dense_by_grid[0][0])
        assert np.array_equal(keys, dense_by_grid[0][1])


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_which_ids_there_are_is_said_alike_on_every_grid(kind: str) -> None:
    names: list[Any] = [7 * n for n in range(300)]
    other = [*names[:-1], 5]
    if kind == "string":
        names, other = ([f"n{name}" for name in some] for some in (names, other))
    sums = [
        np.array(on_grid(*grid, digest_ids, some, kind), np.uint64).sum(axis=0).tolist()
        for some in (names, other)
        for grid in ((1, 1), (2, 1), (2, 2))
    ]
    assert sums[0] == sums[1] == sums[2] != sums[3] == sums[4] == sums[5]
    assert sums[0][0] != sums[0][1]


def test_a_duplicate_id_is_refused() -> None:
    names = [*node_names("string", NODES), "node-node-2"]
    assert names.count("node-node-2") == 1
    names.append("node-node-2")
    with pytest.raises(
        AssertionError, match=r"the nodes: 1 duplicate row; id 'node-node-2' occurs"
    ):
        on_grid(2, 1, map_ids, names, "string", [])


def test_strings_that_were_sent_do_not_stay() -> None:
    count, length = 20_000, 100
    # Half of them are a rank's own; a place and a hash of two words for each that it has.
    expected = count * (length / 2 + 8 + 16)
    for held in on_grid(2, 1, keep_strings, count, length):
        assert held == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("ids", ["dense", "string"])
def test_samples_do_not_depend_on_the_grid(ids: str) -> None:
    graph, fanout = make_graph(), [2, 4]
    names = None if ids == "dense" else node_names("string", NODES)

    def sampled(grid: tuple[int, int], seed: int) -> list[np.ndarray]:
        answers = on_grid(*grid, sample_edges, graph, names, fanout, seed)
        return [
            np.stack([np.concatenate(ends) for ends in zip(*layer, strict=True)])
            for layer in zip(*answers, strict=True)
        ]

    expected = sampled((1, 1), 3)
    degree = np.bincount(graph.dst, minlength=NODES)
    for layer, count in zip(expected, fanout, strict=True):
        kept = np.bincount(layer[1], minlength=NODES)
        assert sorted(kept) == sorted(np.minimum(degree, count))
    for grid in GRIDS:
        for layer, found in zip(expected, sampled(grid, 3), strict=True):
            assert np.array_equal(found, layer)
    assert not np.array_equal(sampled((2, 1), 4)[0], expected[0])
