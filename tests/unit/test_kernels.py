"""Chunks of blocks, and what runs over their segments, against plain loops."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from embertide.kernels.block import Block, segment_max
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
    tops = torch.stack([run.amax(0) if len(run) else torch.full((2,), -torch.inf) for run in runs])
    torch.testing.assert_close(segment_max(values, torch.tensor(lengths)), tops)


@given(st.integers(1, 18), st.integers(1, 40), st.integers(1, 6))
def test_dot_products_per_head(heads: int, per_head: int, rows: int) -> None:
    g = torch.Generator().manual_seed(rows)
    a, b = (torch.randn(rows, heads * per_head, generator=g) for _ in range(2))
    vector = torch.randn(heads, per_head, generator=g)
    split = a.reshape(rows, heads, per_head)
    torch.testing.assert_close(head_dot(a, vector), (split * vector).sum(2))
    expected = (split * b.reshape(rows, heads, per_head)).sum(2)
    torch.testing.assert_close(pair_dot(a, b, heads), expected)
