"""Attention over a block against plain loops in float64, natively and in torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from embertide.kernels import attention, attention_torch
from embertide.kernels.block import Block
from embertide.kernels.heads import NO_SCORES, HeadColumns, PairScore, RowSums
from embertide.kernels.threads import set_threads

HUB = 40_000
"""Non-zeros of a row that is longer than two tasks."""
SOURCES = 211

HEADS = [
    HeadColumns(1, 1, 0, 1),
    HeadColumns(3, 3, 0, 3),
    HeadColumns(1, 17, 0, 17),
    HeadColumns(4, 128, 0, 128),
    HeadColumns(3, 129, 0, 129),
    HeadColumns(4, 128, 40, 111),
    HeadColumns(3, 12, 4, 7),
    HeadColumns(20, 60, 7, 58),
    HeadColumns(2, 600, 100, 500),
]


pytestmark = pytest.mark.usefixtures("kernels")


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make_block(lengths: list[int], dtype: torch.dtype, *, weighted: bool = True) -> Block:
    g = torch.Generator().manual_seed(len(lengths))
    indptr = torch.tensor([0, *lengths]).cumsum(0).to(dtype)
    nnz = int(indptr[-1])
    indices = torch.randint(SOURCES, (nnz,), generator=g).to(dtype)
    return Block(None, indptr, indices, torch.rand(nnz, generator=g) if weighted else None)


LENGTHS = {
    "no rows": [],
    "empty rows": [0, 0, 0],
    "short": [3, 0, 1, 33, 0, 64, 20, 100, 0],
    "hub": [2, 0, HUB, 5, 0, 1],
}


def spread(block: Block) -> torch.Tensor:
    """[nnz] row of each non-zero in the block."""
    lengths = block.indptr.diff().long()
    return torch.repeat_interleave(torch.arange(len(lengths)), lengths)


def softmax(scores: torch.Tensor, row: torch.Tensor, rows: int) -> torch.Tensor:
    top = torch.full((rows, scores.shape[1]), -math.inf, dtype=torch.float64)
    top.scatter_reduce_(0, row[:, None].expand_as(scores), scores, "amax")
    weights = (scores - top[row]).exp()
    total = torch.zeros(rows, scores.shape[1], dtype=torch.float64).index_add_(0, row, weights)
    return weights / total[row]


def log_sums(scores: torch.Tensor, row: torch.Tensor, rows: int) -> torch.Tensor:
    """[rows, H] float64; a row without scores has a large negative one."""
    total = torch.zeros(rows, scores.shape[1], dtype=torch.float64).index_add_(0, row, scores.exp())
    return torch.where(total > 0, total.log(), NO_SCORES)


def weighed(
    block: Block, heads: HeadColumns, x: torch.Tensor, shares: torch.Tensor, rows: int
) -> torch.Tensor:
    """[rows, columns] float64."""
    if block.weights is not None:
        shares = shares * block.weights[:, None]
    columns = torch.arange(heads.start, heads.stop) // heads.per_head - heads.first
    values = shares[:, columns] * x.double()[block.indices.long()]
    return torch.zeros(rows, x.shape[1], dtype=torch.float64).index_add_(0, spread(block), values)


def additive(block: Block, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    raw = source.double()[block.indices.long()] + target.double()[spread(block)]
    return torch.nn.functional.leaky_relu(raw, 0.2)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_additive(heads: HeadColumns, lengths: str, dtype: torch.dtype) -> None:
    block = make_block(LENGTHS[lengths], dtype)
    rows = len(LENGTHS[lengths])
    # Columns of a wider tensor: rows lie apart and are not aligned.
    x = random(SOURCES, heads.width + 3)[:, heads.start + 1 : heads.stop + 1]
    source, target = random(SOURCES, heads.count, seed=2) * 9, random(rows, heads.count, seed=3) * 9
    shares = softmax(additive(block, source, target), spread(block), rows)
    for weighted in (False, True):
        sums = RowSums.begin(x, rows, heads)
        sums.out.fill_(math.nan)
        attention.add_additive(sums, block, x, source, target, slope=0.2, weighted=weighted)
        given = block if weighted else replace(block, weights=None)
        close(sums.out, weighed(given, heads, x, shares, rows))


def parts(block: Block, count: int) -> Iterator[tuple[Block, torch.Tensor]]:
    """A block that has every row, then blocks of the rows that they touch, and their positions."""
    row = spread(block)
    for part in range(count):
        at = torch.arange(block.nnz)[part::count]
        lengths = torch.bincount(row[at], minlength=len(block.indptr) - 1)
        present = lengths.nonzero().squeeze(1)
        ends = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        rows = None
        if part:
            rows = present.int()
            ends = torch.cat([ends[:1], lengths[present].cumsum(0)])
        weights = None if block.weights is None else block.weights[at]
        yield Block(rows, ends.int(), block.indices[at], weights, at.int()), at


@pytest.mark.parametrize("lengths", ["empty rows", "short", "hub"])
@pytest.mark.parametrize("heads", [HEADS[3], HEADS[5], HEADS[7]], ids=str)
def test_a_softmax_over_several_blocks(heads: HeadColumns, lengths: str) -> None:
    block, rows = make_block(LENGTHS[lengths], torch.int32), len(LENGTHS[lengths])
    x = random(SOURCES, heads.stop - heads.start)
    source, target = random(SOURCES, heads.count, seed=2) * 9, random(rows, heads.count, seed=3)
    shares = softmax(additive(block, source, target), spread(block), rows)
    sums = RowSums.begin(x, rows, heads, softmax_blocks=3)
    plain = RowSums.begin(x, rows, heads)
    for part, _ in parts(block, 3):
        attention.add_additive(sums, part, x, source, target, slope=0.2, weighted=True)
        attention.add_shares(plain, part, x, shares.float(), weighted=True)
    expected = weighed(block, heads, x, shares, rows)
    close(sums.out, expected)
    close(plain.out, expected)


@pytest.mark.parametrize("kernels", ["native"], indirect=True)
@pytest.mark.parametrize("lengths", ["short", "hub"])
@pytest.mark.parametrize("width", [3, 9])
def test_a_few_columns_have_the_bits_that_they_have_among_all(width: int, lengths: str) -> None:
    """Tensors on disk are summed some columns at a time."""
    block, rows = make_block(LENGTHS[lengths], torch.int32), len(LENGTHS[lengths])
    x, source, target = random(SOURCES, 40), random(SOURCES, 1, seed=2), random(rows, 1, seed=3)
    found = []
    for columns in (slice(0, 40), *(slice(at, min(at + width, 40)) for at in range(0, 40, width))):
        heads = HeadColumns(1, 40, columns.start, columns.stop)
        some = x[:, columns].contiguous()
        sums = RowSums.begin(some, rows, heads, softmax_blocks=3)
        for part, _ in parts(block, 3):
            attention.add_additive(sums, part, some, source, target, slope=0.2, weighted=True)
        found.append(sums.out)
    assert torch.equal(found[0], torch.cat(found[1:], dim=1))


def make_score(kind: Any, heads: int, per_head: int) -> PairScore:
    vector = random(heads, per_head, seed=4) if kind == "gatv2" else None
    return PairScore(kind=kind, heads=heads, vector=vector, slope=0.3, scale=0.5)


def pair_scores(
    block: Block, key: torch.Tensor, query: torch.Tensor, score: PairScore
) -> torch.Tensor:
    keys, queries = key.double()[block.indices.long()], query.double()[spread(block)]
    if score.vector is None:
        both = score.scale * keys * queries
    else:
        both = torch.nn.functional.leaky_relu(keys + queries, score.slope)
        both = both * score.vector.double().flatten()
    return both.unflatten(1, (score.heads, key.shape[1] // score.heads)).sum(2)


@pytest.mark.parametrize("kind", ["gatv2", "dot"])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("heads", "per_head"), [(1, 1), (3, 5), (4, 32), (2, 65), (20, 3)])
def test_pairs(
    heads: int, per_head: int, lengths: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_torch, "PAIR_VALUES", 4000)
    block, rows = make_block(LENGTHS[lengths], torch.int64), len(LENGTHS[lengths])
    key, query = random(SOURCES, heads * per_head), random(rows, heads * per_head, seed=2)
    x = random(SOURCES, heads * 2, seed=3)
    score = make_score(kind, heads, per_head)
    expected = pair_scores(block, key, query, score)
    shares = softmax(expected, spread(block), rows)
    sums = RowSums.begin(x, rows, HeadColumns(heads, heads * 2, 0, heads * 2))
    attention.add_pairs(sums, block, x, key, query, score, weighted=True)
    close(sums.out, weighed(block, sums.heads, x, shares, rows))
    found = torch.full((block.nnz, heads), math.nan)
    for part, _ in parts(block, 2):
        attention.set_pair_scores(found, part, key, query, score)
    close(found, expected)
    logs = torch.empty(rows, heads)
    close(attention.row_softmax_(found, block.indptr, logs), shares)
    close(logs, log_sums(expected, spread(block), rows))


@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_softmax_over_pairs_goes_on(lengths: str) -> None:
    """First without a third of the non-zeros, then with those alone, into a view of a tensor."""
    block, rows = make_block(LENGTHS[lengths], torch.int64), len(LENGTHS[lengths])
    key, query, x = random(SOURCES, 12), random(rows, 12, seed=2), random(SOURCES, 6, seed=3)
    score, columns = make_score("dot", 3, 4), HeadColumns(3, 6, 0, 6)
    whole = RowSums.begin(x, rows, columns)
    attention.add_pairs(whole, block, x, key, query, score, weighted=True)
    sums = RowSums.begin(x, rows, columns, softmax_blocks=2)
    for part, _ in parts(block, 3):
        if not sums.fresh:
            wide = torch.cat([sums.out, sums.logs()], 1)
            sums = RowSums.resume(wide[:, :6], wide[:, 6:], columns)
        attention.add_pairs(sums, part, x, key, query, score, weighted=True)
    close(sums.out, whole.out.double())


def test_results_do_not_depend_on_threads(kernels: str) -> None:
    if kernels == "fallback":
        pytest.skip("torch's own threads")
    block = make_block([3] * 9000 + LENGTHS["hub"] + [20] * 5000, torch.int32)
    rows, heads = len(block.indptr) - 1, HEADS[3]
    x, target = random(SOURCES, 128), random(rows, 4)
    found = []
    for threads in (1, 3):
        set_threads(threads)
        sums = RowSums.begin(x, rows, heads)
        attention.add_additive(sums, block, x, x[:, :4], target, slope=0.2, weighted=True)
        scores = random(block.nnz, 3)
        attention.row_softmax_(scores, block.indptr)
        found.append((sums.out, scores))
    set_threads(0)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_large_and_small_scores_stay_finite() -> None:
    """The exponential against double precision, wherever a score lies below the maximum."""
    steps = torch.cat([torch.linspace(-90, 0, 20_000), torch.tensor([-1e30])])
    for offset in (-3e4, 0.0, 3e4):
        scores = torch.stack([steps + offset, torch.full_like(steps, offset)], dim=1)
        expected = (scores.double() - scores.double().amax(0)).exp()
        expected /= expected.sum(0)
        found = attention.row_softmax_(scores, torch.tensor([0, len(steps)]))
        torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=1e-36)


def test_wrong_arrays_are_refused(kernels: str) -> None:
    if kernels == "fallback":
        pytest.skip("torch's own messages")
    heads, block = HEADS[3], make_block([3, 2], torch.int32)
    x, target = random(SOURCES, 128), random(2, 4)

    def add(block: Block, x: torch.Tensor = x, target: torch.Tensor = target) -> None:
        sums = RowSums.begin(x, 2, heads)
        attention.add_additive(sums, block, x, x[:, :4], target, slope=0.2, weighted=True)

    with torch.inference_mode():
        add(block, x.clone(), target.clone())
    for wrong, message in [
        (replace(block, indices=block.indices + SOURCES), "indices: outside"),
        (replace(block, indices=block.indices - SOURCES), "indices: outside"),
        (replace(block, rows=torch.tensor([1, 7])), "rows: outside"),
        (replace(block, rows=torch.tensor([1, 1])), "rows: ascending"),
        (replace(block, indptr=torch.tensor([0, 6, 5])), "indptr: ascending"),
        (replace(block, indptr=torch.tensor([0, 3, 6])), "indptr: from 0"),
        (replace(block, indptr=torch.tensor([0, 5])), "out: as many rows"),
    ]:
        with pytest.raises(ValueError, match=message):
            add(wrong)
    with pytest.raises(ValueError, match="x: as wide as out"):
        attention.add_additive(
            RowSums.begin(x, 2, heads), block, x[:, 1:], x[:, :4], target, slope=0.2, weighted=True
        )
    with pytest.raises(ValueError, match="target: one row"):
        add(block, target=target[:1])
    with pytest.raises(TypeError):
        add(block, x.double())
