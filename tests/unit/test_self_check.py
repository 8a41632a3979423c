"""Which rows are computed a second time, their in-edges, and how far they may be off."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from embertide.facts.telemetry.self_check import CHECKED, SelfCheck
from embertide.graph.views import EdgeView, Loops
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr
from embertide.kernels.heads import NO_SCORES
from embertide.program.selfcheck import row_edges
from embertide.program.selfcheck.draw import draw, own_rows, rows_to_check
from embertide.program.selfcheck.judge import (
    TOLERANCE,
    Limits,
    Tally,
    allowed_differences,
    difference,
    joined,
    magnitudes,
    worst_of,
)
from embertide.program.selfcheck.recompute import Change, unchanged
from embertide.program.selfcheck.row_edges import OutEdges, RowEdges, special_rows
from embertide.program.steps.reference import ReferenceRun

FLOAT32 = Limits(torch.float32)
FEW = np.full(200, 4)
"""In-edges of 200 rows."""


@pytest.mark.parametrize(
    ("wanted", "nodes", "rows"),
    [
        (None, 100, 100),
        (None, 10_000, 256),
        (None, 10**6, 1000),
        (None, 10**9, 4096),
        (7, 10**6, 7),
    ],
)
def test_a_thousandth_of_the_nodes_is_checked_within_bounds(
    wanted: int | None, nodes: int, rows: int
) -> None:
    assert rows_to_check(wanted, nodes) == rows


def test_each_node_is_as_likely_to_be_drawn_as_any_other() -> None:
    counts = np.zeros(50)
    for phase in range(4000):
        drawn = draw(5, 50, 3, phase)
        assert len(drawn) == len(set(drawn.tolist())) <= 5
        counts[drawn] += 1
    expected = counts.sum() / 50
    assert (np.abs(counts - expected) < 5 * expected**0.5).all()


def test_the_rows_of_all_workers_are_those_drawn_and_each_range_s_ends() -> None:
    drawn = draw(20, 100, 3, 1)
    for bounds in ((0, 100), (0, 30, 30, 100)):
        ranges = RowRanges(bounds, 1)
        found = [own_rows(drawn, ranges, rank) for rank in range(len(bounds) - 1)]
        ends = {node for a, b in pairwise(bounds) if a < b for node in (a, b - 1)}
        assert set(np.concatenate(found).tolist()) == {*drawn.tolist(), *ends}


def some_rows() -> Csr:
    """Rows 10..14: of 2, 0, 5000, 1 and 3 in-edges; row 13 has a self-loop."""
    counts = [2, 0, 5000, 1, 3]
    cols = np.concatenate([[7, 8], np.arange(5000) % 9, [13], [1, 2, 3]])
    indptr = torch.tensor(np.concatenate([[0], np.cumsum(counts)]))
    cols = torch.tensor(cols, dtype=torch.int32)
    return Csr(10, indptr, cols, torch.arange(len(cols)).float())


def test_rows_have_their_in_edges_and_hubs_are_left_out() -> None:
    found = RowEdges.of(some_rows(), np.array([14, 12, 10, 11]), 100)
    assert found.rows.tolist() == [10, 11, 14]
    assert found.indptr.tolist() == [0, 2, 2, 5]
    assert found.sources.tolist() == [7, 8, 1, 2, 3]
    assert found.weights is not None
    assert found.weights.tolist() == [0.0, 1.0, 5003.0, 5004.0, 5005.0]
    assert found.of_rows(np.array([11, 14])).sources.tolist() == [1, 2, 3]


def test_the_first_rows_are_kept_where_there_are_too_many_in_edges() -> None:
    assert RowEdges.of(some_rows(), np.array([14, 13, 10]), 4).rows.tolist() == [13, 14]


def test_rows_with_self_loops_and_without_in_edges_are_special(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert sorted(special_rows(some_rows(), 0).tolist()) == [11, 13]
    # A hub takes more in-edges than are looked at.
    monkeypatch.setattr(row_edges, "_WINDOW_EDGES", 1000)
    assert special_rows(some_rows(), 0).tolist() == [11]
    assert special_rows(some_rows(), 2).tolist() == []


def test_rows_with_self_loops_that_have_the_fewest_in_edges_are_special() -> None:
    """Hubs, which come first here, would be left out or take most of the memory."""
    counts = np.array([5000, 3000, 2, 4, 1, 3])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    cols = np.repeat(np.arange(6), counts)
    csr = Csr(0, torch.from_numpy(indptr), torch.from_numpy(cols), None)
    assert special_rows(csr, 0).tolist() == [4, 2, 5, 3]


@pytest.mark.parametrize("loops", get_args(Loops))
@pytest.mark.parametrize("weighted", [False, True])
def test_out_degrees_are_those_of_the_reference(loops: Loops, weighted: bool) -> None:
    """Counted in chunks, in the rows of two workers."""
    g = np.random.default_rng(2)
    src, dst = g.integers(0, 20, 200), np.sort(g.integers(0, 20, 200))
    weights = torch.from_numpy(g.random(200))
    view = EdgeView(0, loops, 2.5, weighted)
    graph = (torch.from_numpy(src), torch.from_numpy(dst), weights)
    edges = ReferenceRun({}, {}, [{"": graph}], {"": 20}).edges(view)
    expected = edges.weighted_degree(edges.src) if weighted else edges.degree(edges.src)
    cut = int(np.searchsorted(dst, 11))
    nodes, parts = np.array([0, 3, 7, 19]), []
    for first, rows in ((0, slice(0, cut)), (11, slice(cut, 200))):
        last = 11 if first == 0 else 20
        counts = np.bincount(dst[rows] - first, minlength=last - first)
        indptr = torch.tensor([0, *np.cumsum(counts)])
        csr = Csr(first, indptr, torch.from_numpy(src[rows]).int(), weights[rows].float())
        parts.append(OutEdges.of(csr, nodes, 20, within=True))
    heaviest = torch.maximum(parts[0].heaviest, parts[1].heaviest)
    both = OutEdges(nodes, parts[0].sums + parts[1].sums, heaviest, weighted=True)
    found = both.degrees(view, weighted=weighted)
    assert torch.allclose(found, expected[torch.from_numpy(nodes)], rtol=1e-6)


def layer_norm(x: Tensor) -> Tensor:
    return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt()


def test_rounding_that_a_layer_magnifies_is_allowed_and_a_change_is_not() -> None:
    """Rows whose values are nearly equal, in float32, beside float64."""
    x = 3000 + torch.rand(200, 8, generator=torch.Generator().manual_seed(1))
    expected, rows = layer_norm(x.double()), layer_norm(x)

    def again(at: np.ndarray, change: Change) -> Tensor:
        return change(layer_norm(change(x.double()[torch.from_numpy(at)])))

    off = difference(rows, expected)
    scale = magnitudes(expected)
    assert float((off / scale).max()) > TOLERANCE
    allowed = allowed_differences(off, scale, FEW, FLOAT32, again)
    assert bool((off <= allowed).all())
    assert float((allowed / scale).max()) < 0.1
    rows[17, 3] += 0.3
    changed = difference(rows, expected)
    assert torch.nonzero(
        changed > allowed_differences(changed, scale, FEW, FLOAT32, again)
    ).tolist() == [[17, 3]]


def test_sums_over_many_in_edges_may_be_off_by_their_rounding() -> None:
    """A hub's sum of equal values, one after another in float32."""
    rng, counts = np.random.default_rng(1), np.array([4000, *[20] * 99])
    parts = [np.full(4000, 0.1, np.float32)]
    parts += [rng.random(20).astype(np.float32) * np.float32(0.2) for _ in range(99)]
    sums = [np.cumsum(part, dtype=np.float32)[-1] for part in parts]
    rows = torch.tensor([[total / len(part)] for total, part in zip(sums, parts, strict=True)])
    expected = torch.tensor([[part.astype(np.float64).mean()] for part in parts])

    def again(at: np.ndarray, change: Change) -> Tensor:
        read = [change(torch.from_numpy(parts[row]).double()) for row in at.tolist()]
        return change(torch.stack([part.mean() for part in read]).unsqueeze(1))

    off, scale = difference(rows, expected), magnitudes(expected)
    assert bool((off > allowed_differences(off, scale, 0 * counts, FLOAT32, again)).any())
    assert bool((off <= allowed_differences(off, scale, counts, FLOAT32, again)).all())
    # Of the other rows, and of a hub that lacks a tenth of its in-edges.
    rows[0, 0] *= 0.9
    rows[5, 0] += 1e-4
    off = difference(rows, expected)
    far = off > allowed_differences(off, scale, counts, FLOAT32, again)
    assert torch.nonzero(far).tolist() == [[0, 0], [5, 0]]


def test_rows_in_bfloat16_may_be_off_by_their_rounding() -> None:
    assert FLOAT32.tolerance == TOLERANCE
    assert Limits(torch.bfloat16).tolerance == TOLERANCE + 2.0**-6


def test_what_is_no_number_differs_from_what_is_one() -> None:
    nan, inf = float("nan"), float("inf")
    off = difference(
        torch.tensor([[nan, inf, nan, 1.0]]), torch.tensor([[1.0, inf, nan, 1.0]]).double()
    )
    assert off.tolist() == [[inf, 0.0, 0.0, 0.0]]
    assert magnitudes(torch.tensor([[NO_SCORES, -2.0, nan]]).double()).tolist() == [0.0, 2.0, 0.0]


def test_only_what_large_values_make_is_an_overflow() -> None:
    """Products, their tanh, and a norm by squares, of rows with values of several magnitudes."""
    x = torch.tensor([[1.0, 2.0], [1e30, -1e30], [1e20, 3e20], [3.0, 4.0]])
    weight = torch.tensor([[1e30, 1.0], [1.0, 1e30]])

    def made(x: Tensor, change: Change) -> Tensor:
        x = change(x)
        product = change(x @ weight.to(x.dtype).T)
        norm = change((x * x).sum(1, keepdim=True)).sqrt()
        return change(torch.cat([product, product.tanh(), x / norm], dim=1))

    def again(at: np.ndarray, change: Change) -> Tensor:
        return made(x.double()[torch.from_numpy(at)], change)

    rows, expected = made(x, unchanged), made(x.double(), unchanged)
    assert rows[2, 4:].tolist() == [0.0, 0.0]  # 1e20 is divided by the root of an infinity.
    rows[3, 4] += 0.1
    tally = Tally(0, "h", "", rows=4, largest=1.0)
    allowed = 1e-5 * expected.abs()
    tally.find(np.arange(4), rows, expected, allowed, lambda _t, n: str(n), again)
    assert (tally.beyond, [(one.id, one.column) for one in tally.faults]) == (1, [("3", 4)])
    assert {one.id for one in tally.overflows} == {"1", "2"}
    assert tally.overflowed == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_values_that_change_where_nothing_is_large_are_no_overflow(value: float) -> None:
    """Sums of nothing are not large either, although they are -1e30 by their logarithm."""
    expected = torch.tensor([[1.0, NO_SCORES], [2.0, 3.0]], dtype=torch.float64)

    def again(at: np.ndarray, change: Change) -> Tensor:
        return change(expected[torch.from_numpy(at)])

    rows = expected.float()
    rows[0, 0] = value
    tally = Tally(0, "h", "", rows=2, largest=3.0)
    tally.find(np.arange(2), rows, expected, 1e-5 * expected.abs(), lambda _t, n: str(n), again)
    assert (tally.beyond, tally.overflowed, tally.overflows) == (1, 0, [])


def test_a_tally_has_the_worst_values_of_all_ranks_and_survives_json() -> None:
    tallies = []
    for rank, change in enumerate((0.0, 0.5, 2.0)):
        tally = Tally(1, "h", "user", rows=2, in_edges=5, largest=4.0)
        rows, expected = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64)
        rows[1, 2] += change
        nodes = np.array([10 * rank, 10 * rank + 1])
        tally.find(nodes, rows, expected, torch.full((3,), 1e-3).double(), lambda _t, n: f"u{n}")
        tallies.append(Tally.from_json(tally.to_json()))
    together = joined(tallies)
    assert (together.rows, together.in_edges, together.beyond) == (6, 15, 2)
    assert [fault.id for fault in worst_of(together.faults)] == ["u21", "u11"]
    assert str(together.faults[1]) == (
        "layer 2, 'h', node user u21, column 2: 3, expected 1, may differ by 0.001"
    )
    entry = together.result({"user": RowRanges((0, 1000), 1)})
    assert entry.largest_error == 0.5
    assert entry.chance == 1 - 0.999**6
    whole = SelfCheck(state=CHECKED, checked=[entry], faults=together.faults)
    assert SelfCheck.from_json(whole.to_json()) == whole
    assert whole.largest_errors == {1: 0.5}
