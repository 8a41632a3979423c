"""Sums and maxima over blocks, in chunks of any size, against plain loops."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from embertide.kernels.block import (
    Block,
    add_rows,
    max_gathered,
    max_rows,
    no_weights,
    segment_max,
    segment_sum,
    set_rows,
    stored_weights,
)
from embertide.kernels.nodewise import head_dot, pair_dot

OUTPUTS, SOURCES, WIDTH = 9, 6, 3


@st.composite
def blocks(draw: st.DrawFn, *, every_row: bool | None = None) -> Block:
    """Rows 0..8 or some of them, with weights of either sign."""
    every = draw(st.booleans()) if every_row is None else every_row
    least = 0 if every else 1
    row = st.lists(st.integers(0, SOURCES - 1), min_size=least, max_size=5)
    chosen = range(OUTPUTS) if every else sorted(draw(st.sets(st.integers(0, OUTPUTS - 1))))
    rows = [draw(row) for _ in chosen]
    indices = torch.tensor([i for r in rows for i in r], dtype=torch.int32)
    indptr = torch.tensor([0, *(len(r) for r in rows)]).cumsum(0)
    seed = draw(st.integers(0, 99))
    weights = torch.randn(len(indices), generator=torch.Generator().manual_seed(seed))
    chosen_rows = None if every else torch.tensor(list(chosen), dtype=torch.int64)
    return Block(chosen_rows, indptr, indices, weights)


def source(seed: int = 0) -> torch.Tensor:
    return torch.randn(SOURCES, WIDTH, generator=torch.Generator().manual_seed(seed))


def messages(block: Block, x: torch.Tensor, *, weighted: bool) -> dict[int, torch.Tensor]:
    """Output row -> [k, WIDTH]."""
    found = {}
    for at in range(len(block.indptr) - 1):
        span = slice(int(block.indptr[at]), int(block.indptr[at + 1]))
        values = x[block.indices[span].long()]
        row = at if block.rows is None else int(block.rows[at])
        found[row] = values * block.weights[span].unsqueeze(1) if weighted else values
    return found


@given(blocks(), st.booleans())
def test_sums_are_added(block: Block, weighted: bool) -> None:
    out = torch.ones(OUTPUTS, WIDTH)
    expected = out.clone()
    for row, values in messages(block, source(), weighted=weighted).items():
        expected[row] += values.sum(0)
    add_rows(out, block, source(), stored_weights if weighted else no_weights)
    torch.testing.assert_close(out, expected)


@given(blocks(every_row=True))
def test_sums_are_set_whatever_was_there(block: Block) -> None:
    out = torch.full((OUTPUTS, WIDTH), float("nan"))
    set_rows(out, block, source(), stored_weights)
    expected = messages(block, source(), weighted=True)
    torch.testing.assert_close(out, torch.stack([expected[r].sum(0) for r in range(OUTPUTS)]))


@given(blocks(), st.booleans())
def test_maxima_on_both_paths(block: Block, weighted: bool) -> None:
    start = torch.full((OUTPUTS, WIDTH), -0.1)
    expected = start.clone()
    for row, values in messages(block, source(), weighted=weighted).items():
        if len(values):
            expected[row] = torch.maximum(expected[row], values.amax(0))
    weights = stored_weights if weighted else no_weights
    out = start.clone()
    max_rows(out, block, source(), weights)
    torch.testing.assert_close(out, expected)
    gathered = start.clone()
    for chunk in block.chunks():
        best = max_gathered(chunk, source(), weights(chunk))
        gathered[chunk.rows] = torch.maximum(gathered[chunk.rows], best)
    torch.testing.assert_close(gathered, expected)


@given(blocks(), st.integers(1, 12))
def test_chunks_are_whole_rows_in_order(block: Block, limit: int) -> None:
    chunks = list(block.chunks(limit))
    rows, at = 0, 0
    for chunk in chunks:
        assert (chunk.first, chunk.start) == (rows, at)
        assert chunk.stop - chunk.start <= limit or chunk.last - chunk.first == 1
        assert chunk.offsets.tolist() == [
            int(i) - at for i in block.indptr[chunk.first : chunk.last + 1]
        ]
        assert int(chunk.lengths.sum()) == len(chunk.indices) == chunk.stop - chunk.start
        rows, at = chunk.last, chunk.stop
    assert (rows, at) == (len(block.indptr) - 1, block.nnz)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_segments(lengths: list[int]) -> None:
    values = torch.randn(sum(lengths), 2, generator=torch.Generator().manual_seed(1))
    runs = values.split(lengths)
    sums = torch.stack([run.sum(0) for run in runs])
    tops = torch.stack([run.amax(0) if len(run) else torch.full((2,), -torch.inf) for run in runs])
    torch.testing.assert_close(segment_sum(values, torch.tensor(lengths)), sums)
    torch.testing.assert_close(segment_max(values, torch.tensor(lengths)), tops)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6))
def test_dot_products_per_head(heads: int, per_head: int, rows: int) -> None:
    g = torch.Generator().manual_seed(rows)
    a, b = (torch.randn(rows, heads * per_head, generator=g) for _ in range(2))
    vector = torch.randn(heads, per_head, generator=g)
    split = a.reshape(rows, heads, per_head)
    torch.testing.assert_close(head_dot(a, vector), (split * vector).sum(2))
    expected = (split * b.reshape(rows, heads, per_head)).sum(2)
    torch.testing.assert_close(pair_dot(a, b, heads), expected)
