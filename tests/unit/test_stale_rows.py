"""Rows that are stale, forward through a plan, rows that are wanted, backward; whole plans."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from embertide.engine.stages.changes.comparing import _places
from embertide.engine.stages.changes.digests import _of_edges
from embertide.engine.stages.infer.moved import moved_rows, relative_errors
from embertide.kernels.csr import Csr
from embertide.kernels.hashing import hash_bytes
from embertide.kernels.some_rows import targets_of
from embertide.program.plans.flow import stale_in, stale_rows, wanted_in, why_whole
from embertide.program.plans.plan import Plan
from embertide.program.steps import Activation, Aggregate, GraphNorm, Linear, Program, Propagate
from embertide.program.steps.frontier import Changes
from embertide.spec.grid import GridShape
from tests.support.plans import in_slices

NODES = 8
"""A path: node i has an edge from i - 1."""


def path() -> Csr:
    indptr = torch.tensor([0, *range(NODES)])
    return Csr(0, indptr, torch.arange(NODES - 1, dtype=torch.int32))


def plan_of(*steps: Any, layers: int = 1) -> Plan:
    widths = {"x": 4, **{step.out: 4 for step in steps}}
    params = {"w": torch.eye(4)}
    program = Program(steps=steps, params=params, widths=widths, layers=layers)
    return in_slices(program, GridShape())


def rows(*some: int) -> torch.Tensor:
    every = torch.zeros(NODES, dtype=torch.bool)
    every[list(some)] = True
    return every


def stale(plan: Plan, **changes: torch.Tensor) -> dict[str, list[int]]:
    """Tensor -> the rows that differ."""
    given = {name: {"": changes.get(name, rows())} for name in ("new", "features", "edges", "out")}
    found = stale_rows(plan, Changes(**given), lambda _name, sources: targets_of(path(), sources))
    return {name: of.nonzero().flatten().tolist() for name, of in found.items()}


TWO_SUMS = (
    Linear(out="a", layer=0, x="x", weight="w"),
    Aggregate(out="b", layer=0, x="a", norm="in"),
    Aggregate(out="out", layer=1, x="b", norm="in"),
)


def test_changes_reach_one_neighbour_more_with_each_sum() -> None:
    plan = plan_of(*TWO_SUMS, layers=2)
    assert stale(plan, features=rows(2)) == {"x": [2], "a": [2], "b": [2, 3], "out": [2, 3, 4]}
    assert stale(plan, edges=rows(5)) == {"x": [], "a": [], "b": [5], "out": [5, 6]}
    new = stale(plan, new=rows(7), features=rows(7), edges=rows(7))
    assert new == {"x": [7], "a": [7], "b": [7], "out": [7]}


def test_rows_that_read_the_degree_of_a_source_differ_with_it() -> None:
    by_out = plan_of(Aggregate(out="out", layer=0, x="x", norm="both"))
    assert stale(by_out, out=rows(3))["out"] == [3, 4]
    by_in = plan_of(Aggregate(out="out", layer=0, x="x", norm="sym_in"))
    assert stale(by_in, edges=rows(3))["out"] == [3, 4]
    alone = plan_of(Aggregate(out="out", layer=0, x="x", norm="in"))
    assert stale(alone, edges=rows(3))["out"] == [3]


def test_factors_that_are_in_the_rows_count_where_the_rows_differ() -> None:
    plan = plan_of(
        Linear(out="a", layer=0, x="x", weight="w"),
        Aggregate(out="b", layer=0, x="a", norm="both"),
        Aggregate(out="out", layer=1, x="b", norm="both"),
        layers=2,
    )
    assert [op.out for op in plan.ops if op.scales] == ["b"]
    changes = Changes(**{n: {"": rows(*at)} for n, at in CHANGES.items()})
    calls: list[list[int]] = []

    def targets(_name: str, sources: torch.Tensor) -> torch.Tensor:
        calls.append(sources.nonzero().flatten().tolist())
        return targets_of(path(), sources)

    found = stale_in(plan, plan.ops[-1:], {"b": rows()}, changes, targets)
    # Its own factor is not in its row.
    assert found["out"].nonzero().flatten().tolist() == [3]
    assert calls == [[]]
    # All of it, where rows with another factor differ.
    assert stale(plan, out=rows(3))["out"] == [3, 4, 5]


CHANGES: dict[str, tuple[int, ...]] = {"new": (), "features": (), "edges": (), "out": (3,)}


def test_sums_of_sums_reach_as_far_as_they_are_many() -> None:
    plan = plan_of(Propagate(out="out", layer=0, x="x", times=3, norm="in"))
    assert stale(plan, features=rows(1))["out"] == [1, 2, 3, 4]


def wanted(plan: Plan, *some: int) -> tuple[dict[tuple[int, str], list[int]], dict[str, list[int]]]:
    """Layer and relation -> rows whose edges some rows of ``out`` want, and node type -> rows."""
    nodes, results = dict.fromkeys(plan.program.types.values(), NODES), {"out": rows(*some)}
    at = wanted_in(plan, plan.ops, results, nodes, lambda _name, of: of.roll(-1) & rows(*range(7)))
    assert set(at.made["out"].nonzero().flatten().tolist()) == set(some)
    return (
        {key: of.nonzero().flatten().tolist() for key, of in at.graphs.items()},
        {key: of.nonzero().flatten().tolist() for key, of in at.of_types.items()},
    )


def test_sums_want_the_sources_of_what_is_wanted_and_its_own_rows() -> None:
    graphs, types = wanted(plan_of(*TWO_SUMS, layers=2), 4)
    assert graphs == {(1, ""): [4], (0, ""): [3, 4]}
    assert types == {"": [2, 3, 4]}


def test_sums_of_sums_want_as_far_as_they_are_many() -> None:
    plan = plan_of(Propagate(out="out", layer=0, x="x", times=3, norm="in"))
    assert wanted(plan, 4) == ({(0, ""): [2, 3, 4]}, {"": [1, 2, 3, 4]})


def test_sums_between_two_types_want_sources_alone() -> None:
    """Though both have as many nodes."""
    step = Aggregate(out="out", layer=0, x="x", relation="a:to:b")
    program = Program(
        steps=(step,), params={}, widths={"x": 4, "out": 4}, layers=1, inputs={"a": "x"},
        results={"b": "out"},
    )  # fmt: skip
    graphs, types = wanted(in_slices(program, GridShape()), 4)
    assert graphs == {(0, "a:to:b"): [4]}
    assert types == {"b": [4], "a": [3]}


def test_statistics_want_all_rows() -> None:
    plan = plan_of(GraphNorm(out="out", layer=0, x="x", over="all"))
    assert wanted(plan, 4) == ({}, {"": [*range(NODES)]})


def test_plans_say_why_all_rows_are_computed() -> None:
    assert why_whole(plan_of(*TWO_SUMS, layers=2), sampled=True) == ""
    elu = plan_of(*TWO_SUMS[:2], Activation(out="out", layer=0, x="b", kind="elu"))
    assert why_whole(elu, sampled=False) == (
        "the rows of out (activation, layer 1) may be rounded in another way among other rows"
    )
    out = plan_of(Aggregate(out="out", layer=0, x="x", norm="both"))
    assert why_whole(out, sampled=False) == ""
    assert why_whole(out, sampled=True).endswith("reads out-degrees of samples")
    weighted = plan_of(Aggregate(out="out", layer=0, x="x", norm="both_weighted"))
    assert why_whole(weighted, sampled=False).endswith("reads sums of the weights of out-edges")


@pytest.mark.parametrize("at_once", [1, 7, 150, 1000])
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_targets_are_the_rows_with_an_edge_from_a_source(
    at_once: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embertide.kernels.some_rows._EDGES", at_once)
    monkeypatch.setattr("embertide.kernels.native.lib", None)
    g = np.random.default_rng(1)
    ends = np.sort(g.integers(0, 300, 49))
    indptr = torch.tensor([0, *ends, 300])
    csr = Csr(0, indptr, torch.from_numpy(g.integers(0, 60, 300).astype(np.int32)))
    sources = torch.from_numpy(g.random(60) < share)
    expected = [bool(sources[csr.slice(i, i + 1).cols.long()].any()) for i in range(csr.rows)]
    assert targets_of(csr, sources).tolist() == expected
    assert not targets_of(csr, torch.zeros(60, dtype=torch.bool)).any()


def test_hashes_of_bytes_tell_rows_apart() -> None:
    data = np.zeros(64, np.uint8)
    same = hash_bytes(np.array([0, 16, 32, 32, 40, 64]), data)
    assert (same[0] == same[1]).all()
    assert len({tuple(row) for row in same.tolist()}) == 4
    data[20] = 1
    other = hash_bytes(np.array([0, 16, 32, 32, 40, 64]), data)
    assert (other[0] == same[0]).all()
    assert (other[1] != same[1]).any()


def test_rows_move_beyond_the_tolerance_of_their_norm() -> None:
    seen = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0], [0.0, 0.0], [3.0, 4.0], [3e38, 3e38]])
    new = torch.tensor(
        [[3.0, 4.4], [3.0, 4.6], [0.0, 0.0], [1e-9, 0.0], [math.nan, 4.0], [0, 3e38]]
    )
    moved = [False, True, False, True, True, True]
    assert moved_rows(seen, new, 0.1, None).tolist() == moved
    # Zeros of two signs are equal numbers with other bits.
    zeros = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    assert moved_rows(zeros, zeros * torch.tensor([-1.0, 1.0]), 0.0, None).tolist() == [True, True]
    assert not moved_rows(zeros, zeros.clone(), 0.0, None).any()
    inf = torch.tensor([[math.inf, 1.0]])
    assert moved_rows(inf, torch.ones(1, 2), 0.5, None).all()
    assert relative_errors(seen[:3], new[:3]).tolist() == pytest.approx(
        [0.4 / math.hypot(3, 4.4), 0.6 / math.hypot(3, 4.6), 0.0]
    )
    assert relative_errors(seen[4:5], new[4:5]).tolist() == [math.inf]


@pytest.mark.parametrize("in_order", [True, False])
def test_nodes_have_the_places_that_their_ids_had(in_order: bool) -> None:
    kept = np.random.default_rng(2).integers(0, 2**63, (50, 2)).astype(np.uint64)
    kept = kept[np.argsort(kept[:, 0])] if in_order else kept
    asked = np.concatenate(
        [kept[[49, 0, 17]], kept[:1] + np.uint64(1), kept[17:18] | np.uint64(1 << 63)]
    )
    assert _places(kept, asked).tolist() == [49, 0, 17, -1, -1]


def test_digests_of_edges_are_those_of_their_parts() -> None:
    g = np.random.default_rng(3)
    places = torch.from_numpy(g.permutation(40) - 1)
    lengths = g.integers(0, 5, 30)
    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]))
    cols = torch.from_numpy(g.integers(0, 40, int(indptr[-1])).astype(np.int32))
    weights = torch.rand(len(cols))
    csr = Csr(0, indptr, cols, weights)
    expected = []
    for row in range(30):
        some = csr.slice(row, row + 1)
        pairs = zip(some.cols.tolist(), some.weights.numpy(), strict=True)
        parts = [places[c].numpy().astype(np.int32).tobytes() + w.tobytes() for c, w in pairs]
        data = np.frombuffer(b"".join(parts), np.uint8)
        expected.append(hash_bytes(np.array([0, len(data)]), data)[0])
    assert (_of_edges(csr, places) == np.array(expected)).all()
    assert (_of_edges(csr.without_weights(), places) != np.array(expected)).any()
    moved = Csr(0, indptr, places[cols.long()].to(torch.int32), weights)
    assert (_of_edges(moved) == np.array(expected)).all()
