"""Sums over rows of any length: off by at most 1e-6 of the magnitudes that are added up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch

from embertide.graph.sources import Sources
from embertide.graph.spmm import HubSums
from embertide.grid import Axis
from embertide.kernels import sums
from embertide.kernels.attention import add_additive, add_shares, row_softmax_
from embertide.kernels.block import Block
from embertide.kernels.csr import Csr
from embertide.kernels.edge_features import single_loop_features
from embertide.kernels.epilogue import NOTHING, Factors
from embertide.kernels.heads import HeadColumns, RowSums
from embertide.kernels.segments import Reduce, Segments, edge_runs
from embertide.kernels.spmm import reduce_linear, reduce_rows

BOUND = 1e-6
HUB = 2**24 + 1
"""In-edges: one more than float32 can count."""
LENGTHS = [0, 1, 16, 17, 32, 33, 50, 1000, 3 * (1 << 14) + 5]
"""In-edges of shorter rows: of a run, of some, of a task, of several."""


def _constant(edges: int) -> torch.Tensor:
    return torch.full((edges,), 0.1)


def _thirds(edges: int) -> torch.Tensor:
    return torch.full((edges,), 1 / 3)


def _large_first(edges: int) -> torch.Tensor:
    """What comes after the first is too small to change it, term by term."""
    values = torch.full((edges,), 2.0**-25)
    values[:1] = 1.0
    return values


def _heavy(edges: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(edges)
    return torch.randn(edges, generator=g).mul_(3).exp_() * torch.randn(edges, generator=g).sign()


VALUES = [_constant, _thirds, _large_first, _heavy]
Values = Callable[[int], torch.Tensor]


def rows_of(*lengths: int) -> Block:
    """A block whose non-zeros have a source each."""
    indptr = torch.tensor([0, *lengths]).cumsum(0)
    return Block(None, indptr, torch.arange(int(indptr[-1]), dtype=torch.int32))


def assert_near(found: torch.Tensor, values: torch.Tensor, block: Block) -> None:
    """``found`` [rows, 1] are the sums of ``values`` [nnz]."""
    for row, (start, stop) in enumerate(pairwise(block.indptr.tolist())):
        terms = values[start:stop].double()
        error = abs(float(found[row, 0]) - float(terms.sum()))
        assert error <= BOUND * float(terms.abs().sum()), (row, stop - start)


@pytest.mark.tier(2)
@pytest.mark.parametrize("values", VALUES)
def test_a_hub_of_more_edges_than_float32_counts(kernels: str, values: Values) -> None:
    block, x = rows_of(HUB), values(HUB).unsqueeze(1)
    out = torch.empty(1, 1)
    reduce_rows(out, block, x, Factors(), NOTHING)
    assert_near(out, x[:, 0], block)
    mean = torch.empty(1, 1)
    reduce_rows(mean, block, x, Factors(target=torch.tensor([1 / HUB])), NOTHING)
    assert_near(mean.double() * HUB, x[:, 0], block)


@pytest.mark.parametrize("width", [1, 4, 8, 17, 64, 130])
@pytest.mark.parametrize("values", VALUES)
def test_rows_of_any_length(kernels: str, values: Values, width: int) -> None:
    block = rows_of(*LENGTHS)
    x = values(block.nnz).unsqueeze(1).expand(-1, width).contiguous()
    weights = torch.rand(block.nnz, generator=torch.Generator().manual_seed(1))
    out, product = torch.empty(len(LENGTHS), width), torch.empty(len(LENGTHS), width)
    reduce_rows(out, block, x, Factors(weights=weights), NOTHING)
    reduce_linear(product, block, x, torch.eye(width), Factors(weights=weights), NOTHING)
    for column in (0, width - 1):
        assert_near(out[:, column:], x[:, 0].double() * weights.double(), block)
        assert_near(product[:, column:], x[:, 0].double() * weights.double(), block)


def test_rows_in_bfloat16(kernels: str) -> None:
    block, x = rows_of(*LENGTHS), _constant(sum(LENGTHS)).unsqueeze(1).bfloat16()
    out = torch.empty(len(LENGTHS), 1)
    reduce_rows(out, block, x, Factors(), NOTHING)
    assert_near(out, x[:, 0], block)


@pytest.mark.parametrize("values", [_constant, _thirds, _large_first])
def test_attention_over_a_hub(kernels: str, values: Values) -> None:
    edges = 1 << 20
    block, x = rows_of(edges, 5), values(edges + 5).unsqueeze(1)
    # Equal scores: every share is 1 / edges, and the denominator is their number.
    sums = RowSums.begin(x, 2, HeadColumns(1, 1, 0, 1))
    zeros = torch.zeros(edges + 5, 1)
    add_additive(sums, block, x, zeros, torch.zeros(2, 1), slope=0.2, weighted=False)
    assert_near(sums.out[:1].double() * edges, x[:, 0], rows_of(edges))
    given = RowSums.begin(x, 2, HeadColumns(1, 1, 0, 1))
    add_shares(given, block, x, torch.ones(edges + 5, 1), weighted=False)
    assert_near(given.out, x[:, 0], block)


def test_the_softmax_of_a_hub(kernels: str) -> None:
    edges = (1 << 20) + 3
    scores = torch.full((edges, 1), 0.1).exp()
    shares = row_softmax_(scores, torch.tensor([0, edges]))
    torch.testing.assert_close(shares * edges, torch.ones(edges, 1), rtol=BOUND, atol=0)


@pytest.mark.tier(2)
@pytest.mark.parametrize("limit", [1000, 1 << 16])
@pytest.mark.parametrize("reduce", ["sum", "mean", "var", "softmax"])
def test_messages_of_a_hub_in_many_runs(reduce: Reduce, limit: int) -> None:
    edges = 1 << 20
    block, values = rows_of(3, edges, 4), _constant(edges + 7).unsqueeze(1)
    if reduce == "var":
        values[::2] = -0.1
    segments = Segments(reduce, values, 3, 1)
    for run in edge_runs(block, limit):
        segments.add(run, values[run.span], torch.zeros(len(values[run.span]), 1))
    found = segments.finish()[1:2].double()
    terms = values[3 : edges + 3, 0]
    wanted = terms.double().square() if reduce == "var" else terms
    times = 1 if reduce == "sum" else edges
    assert_near(found * times, wanted, rows_of(edges))


@pytest.mark.parametrize("values", [_constant, _thirds])
def test_groups_of_a_hub(values: Values) -> None:
    group = Block(torch.tensor([1], dtype=torch.int32), torch.tensor([0, 2000]), torch.arange(2000))
    x, groups, out = values(2000).unsqueeze(1), 3000, torch.zeros(2, 1)
    sources = Sources(
        axis=Axis("graph", (0, 1), 0),
        local=group,
        remote=(group,) * groups,
        group_rows=2000,
        requests={},
        cuts=np.zeros((2, 1), np.int64),
        outputs=2,
    )
    hubs = HubSums.of(sources, out)
    assert hubs is not None
    for _ in range(groups):
        with hubs.adding(group.hubs):
            reduce_rows(out, group, x, Factors(), NOTHING, accumulate=True)
    hubs.finish()
    assert_near(out[1:].double() / groups, x[:, 0], rows_of(2000))


def test_features_of_a_loop_at_a_hub() -> None:
    edges = 1 << 20
    csr = Csr(0, torch.tensor([0, edges]), torch.ones(edges, dtype=torch.int32), None)
    filled = single_loop_features(csr, _constant(edges).unsqueeze(1), "mean")
    assert abs(float(filled[-1, 0]) / float(torch.tensor(0.1)) - 1) <= BOUND


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_that_look_at_no_value_are_the_same(weighted: bool) -> None:
    """As on a GPU: empty rows first, between and last, rows of one run and of many."""
    lengths = torch.tensor([0, 5, 16, 0, 17, 1000, 33, 0, 32, 0])
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    indices = torch.randint(50, (int(offsets[-1]),))
    weights = torch.rand(len(indices)) if weighted else None
    source = torch.randn(50, 7)
    found = sums._sum_unseen(source, indices, offsets, lengths, weights)
    assert torch.equal(found, sums.sum_rows(source, indices, offsets, weights))
