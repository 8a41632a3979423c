"""Kernels over rows in bfloat16: the same sums as over the same values in float32, rounded once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embertide.kernels import native
from embertide.kernels.attention import add_additive, add_pairs, add_shares, set_pair_scores
from embertide.kernels.block import Block
from embertide.kernels.epilogue import NOTHING, Epilogue, Factors
from embertide.kernels.heads import HeadColumns, PairScore, RowSums
from embertide.kernels.rows import gather_rows, scatter_rows
from embertide.kernels.spmm import Reduce, multiply, reduce_linear, reduce_rows

WIDTHS = (1, 3, 17, 128, 131)
HUB = 40_000
"""Non-zeros of the longest row: more than two tasks of the native kernels."""
LENGTHS = [3, 0, 1, 40, HUB, 0, 7]
SOURCES = 50


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def block_of(lengths: list[int], dtype: torch.dtype = torch.int32) -> Block:
    indptr = torch.tensor([0, *lengths]).cumsum(0).to(dtype)
    nnz = int(indptr[-1])
    indices = torch.randint(SOURCES, (nnz,)).to(dtype)
    return Block(None, indptr, indices, torch.randn(nnz))


def narrow_rows(count: int, width: int) -> torch.Tensor:
    """[count, width] columns of a wider tensor, which begin at no multiple of anything."""
    return torch.randn(count, width + 4)[:, 3 : 3 + width].bfloat16()


@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", WIDTHS)
def test_sums_are_those_of_the_same_values(
    kernels: str, width: int, dtype: torch.dtype, reduce: Reduce
) -> None:
    block, x = block_of(LENGTHS, dtype), narrow_rows(SOURCES, width)
    factors = Factors(block.weights, torch.rand(SOURCES) + 0.5, torch.rand(len(LENGTHS)) + 0.5)
    last = Epilogue(torch.randn(width), "relu", 0.0, torch.rand(len(LENGTHS)))
    expected, found = torch.empty(7, width), torch.empty(7, width)
    rounded = torch.empty(7, width + 5, dtype=torch.bfloat16)[:, 2 : 2 + width]
    reduce_rows(expected, block, x.float(), factors, last, reduce=reduce)
    reduce_rows(found, block, x, factors, last, reduce=reduce)
    reduce_rows(rounded, block, x, factors, last, reduce=reduce)
    assert torch.equal(found, expected)
    assert torch.equal(rounded, expected.bfloat16())


@pytest.mark.parametrize("width", WIDTHS)
def test_products_are_rounded_once(kernels: str, width: int) -> None:
    block, x, weight = block_of(LENGTHS), narrow_rows(SOURCES, 20), torch.randn(width, 20)
    last = Epilogue(torch.randn(width), "elu", 1.5, torch.rand(7))
    expected, found = torch.empty(7, width), torch.empty(7, width)
    rounded = torch.empty(7, width, dtype=torch.bfloat16)
    reduce_linear(expected, block, x.float(), weight, Factors(), last)
    reduce_linear(found, block, x, weight, Factors(), last)
    reduce_linear(rounded, block, x, weight, Factors(), last)
    assert torch.equal(found, expected)
    assert torch.equal(rounded, expected.bfloat16())
    y, exact = torch.randn(700, 20), torch.empty(700, width)
    made = torch.empty(700, width + 3, dtype=torch.bfloat16)[:, 1 : 1 + width]
    multiply(exact, y, weight, NOTHING)
    multiply(made, y, weight, NOTHING)
    assert torch.equal(made, exact.bfloat16())
    multiply(exact, y.bfloat16().float(), weight, NOTHING)
    again = torch.empty_like(exact)
    multiply(again, y.bfloat16(), weight, NOTHING)
    assert torch.equal(again, exact)


def test_rounding_is_to_the_nearest_and_to_even(kernels: str) -> None:
    """Of numbers that lie between two, of ties, of those next to zero and of what is no number."""
    bits = torch.tensor([0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 1, 0x00018000, 0x7F7FFFFF])
    bits = torch.cat([bits, -bits, torch.randint(0, 0x7F800000, (400,))])
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0])
    given_rows = torch.cat([bits.int().view(torch.float32), special]).reshape(-1, 1)
    block = Block(
        None,
        torch.arange(len(given_rows) + 1, dtype=torch.int32),
        torch.arange(len(given_rows), dtype=torch.int32),
    )
    for width in (1, 33):
        x = given_rows.expand(-1, width).contiguous()
        wide, found = torch.empty_like(x), torch.empty_like(x, dtype=torch.bfloat16)
        reduce_rows(wide, block, x, Factors(), NOTHING, reduce="max")
        reduce_rows(found, block, x, Factors(), NOTHING, reduce="max")
        torch.testing.assert_close(found, wide.bfloat16(), rtol=0, atol=0, equal_nan=True)


@given(st.lists(st.sampled_from([0, 0, 1, 2, 5, 300]), max_size=40), st.integers(1, 40))
def test_rows_of_any_shape(lengths: list[int], width: int) -> None:
    block, x = block_of(lengths), narrow_rows(SOURCES, width)
    factors = Factors(block.weights)
    expected, found = torch.empty(len(lengths), width), torch.empty(len(lengths), width)
    rounded = torch.empty(len(lengths), width, dtype=torch.bfloat16)
    reduce_rows(expected, block, x.float(), factors, NOTHING)
    reduce_rows(found, block, x, factors, NOTHING)
    reduce_rows(rounded, block, x, factors, NOTHING)
    assert torch.equal(found, expected)
    assert torch.equal(rounded, expected.bfloat16())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scaled", [False, True])
def test_rows_are_gathered_and_scattered(kernels: str, width: int, scaled: bool) -> None:
    source, index = narrow_rows(900, width), torch.randint(900, (3000,))
    scale = torch.rand(900) if scaled else None
    found = gather_rows(source, index, scale=scale)
    expected = source[index].float()
    if scale is not None:
        expected *= scale[index].unsqueeze(1)
    assert torch.equal(found, expected.bfloat16())
    out = torch.zeros(6000, width + 5, dtype=torch.bfloat16)
    to = torch.randperm(6000)[:3000]
    scatter_rows(out[:, 2 : 2 + width], to, found)
    assert torch.equal(out[to, 2 : 2 + width], found)
    assert not out[:, :2].any()


@pytest.mark.parametrize(("heads", "per_head"), [(1, 3), (3, 5), (20, 2), (2, 64)])
@pytest.mark.parametrize("kind", ["additive", "gatv2", "dot", "shares"])
def test_attention_is_that_over_the_same_values(
    kernels: str, kind: str, heads: int, per_head: int
) -> None:
    block, width = block_of([3, 0, 1, 40, 20_000, 7]), heads * per_head
    x, key = narrow_rows(SOURCES, width), narrow_rows(SOURCES, width)
    query, shares = torch.randn(6, width), torch.rand(block.nnz, heads)
    source, target = torch.randn(SOURCES, heads), torch.randn(6, heads)
    found = []
    for values, keys in ((x, key), (x.float(), key.float())):
        sums = RowSums.begin(values, 6, HeadColumns(heads, width, 0, width))
        if kind == "additive":
            add_additive(sums, block, values, source, target, slope=0.2, weighted=True)
        elif kind == "shares":
            add_shares(sums, block, values, shares, weighted=False)
        else:
            vector = torch.ones(heads, per_head) if kind == "gatv2" else None
            score = PairScore(kind=kind, heads=heads, vector=vector)  # type: ignore[arg-type]
            add_pairs(sums, block, values, keys, query, score, weighted=False)
            scores = torch.empty(block.nnz, heads)
            set_pair_scores(scores, block, keys, query, score)
            found.append(scores)
        found.append(sums.out)
    half = len(found) // 2
    assert all(torch.equal(a, b) for a, b in zip(found[:half], found[half:], strict=True))


@pytest.mark.skipif(native.lib is None, reason=native.describe())
def test_what_is_added_to_is_float32() -> None:
    block, x = block_of([2, 3]), narrow_rows(SOURCES, 4)
    out = torch.zeros(2, 4, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="float32, since it is added to"):
        reduce_rows(out, block, x, Factors(), NOTHING, accumulate=True)
    some = Block(torch.tensor([0, 1], dtype=torch.int32), block.indptr, block.indices)
    with pytest.raises(ValueError, match="float32, since only some rows"):
        reduce_rows(out, some, x, Factors(), NOTHING)
    with pytest.raises(TypeError, match="rows of float32 or bfloat16"):
        native.lib.gather_rows(out, x.half(), torch.tensor([0, 1]), None)
    with pytest.raises(ValueError, match="of the type of from"):
        gather_rows(x, torch.tensor([0, 1]), out=torch.zeros(2, 4))
