"""Reductions, products and their fusion, on native kernels and on torch, against float64 loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from embertide.kernels import native
from embertide.kernels.block import Block
from embertide.kernels.epilogue import NOTHING, Epilogue, Factors
from embertide.kernels.memory import empty
from embertide.kernels.spmm import Reduce, max_gathered, multiply, reduce_linear, reduce_rows
from embertide.kernels.threads import set_threads

WIDTHS = (1, 3, 17, 128, 129, 300)
HUB = 40_000
"""Non-zeros of the longest row: more than two tasks of the native kernels."""


@pytest.fixture
def three_threads() -> Iterator[None]:
    yield
    set_threads(0)


def random_block(
    lengths: list[int], sources: int, *, dtype: torch.dtype = torch.int32, rows: int | None = None
) -> Block:
    g = torch.Generator().manual_seed(len(lengths))
    indptr = torch.tensor([0, *lengths]).cumsum(0).to(dtype)
    nnz = int(indptr[-1])
    indices = torch.randint(sources, (nnz,), generator=g).to(dtype)
    chosen = None
    if rows is not None:
        chosen = torch.randperm(rows, generator=g)[: len(lengths)].sort()[0].to(torch.int32)
    return Block(chosen, indptr, indices, torch.randn(nnz, generator=g))


def expected_rows(
    block: Block,
    x: torch.Tensor,
    factors: Factors,
    reduce: str,
    out: torch.Tensor | None,
    rows: int,
) -> torch.Tensor:
    """[rows, width] float64: of a sum or a maximum alone, or joined with what is in ``out``."""
    x = x.double()
    if factors.source is not None:
        x = x * factors.source.double().unsqueeze(1)
    found = torch.zeros(rows, x.shape[1], dtype=torch.float64) if out is None else out.double()
    for at in range(len(block.indptr) - 1):
        span = slice(int(block.indptr[at]), int(block.indptr[at + 1]))
        values = x[block.indices[span].long()]
        if factors.weights is not None:
            values = values * factors.weights[span].double().unsqueeze(1)
        row = at if block.rows is None else int(block.rows[at])
        if reduce == "max" and not len(values):
            continue
        result = values.sum(0) if reduce == "sum" else values.amax(0)
        if factors.target is not None:
            result = result * factors.target[row].double()
        if out is None:
            found[row] = result
        else:
            found[row] = found[row] + result if reduce == "sum" else found[row].maximum(result)
    return found


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=2e-5 * (1 + scale))


@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_any_width(kernels: str, width: int, dtype: torch.dtype, reduce: Reduce) -> None:
    block = random_block([3, 0, 1, 40, 0, 7], 50, dtype=dtype)
    x = torch.randn(50, width)
    factors = Factors(block.weights, torch.rand(50) + 0.5, torch.rand(6) + 0.5)
    out = torch.full((6, width), float("nan"))
    reduce_rows(out, block, x, factors, NOTHING, reduce=reduce)
    close(out, expected_rows(block, x, factors, reduce, None, 6))


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_a_hub_longer_than_a_task(kernels: str, reduce: Reduce, three_threads: None) -> None:
    block = random_block([2, HUB, 0, 5, HUB // 2, 1], 999)
    x, weight = torch.randn(999, 20), torch.randn(7, 20)
    expected = expected_rows(block, x, Factors(), reduce, None, 6)
    results = []
    for threads in (1, 3):
        set_threads(threads)
        out, product = torch.empty(6, 20), torch.empty(6, 7)
        reduce_rows(out, block, x, Factors(), NOTHING, reduce=reduce)
        reduce_linear(product, block, x, weight, Factors(), NOTHING, reduce=reduce)
        close(out, expected)
        close(product, expected @ weight.double().T)
        results.append((out, product))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_groups_touch_only_their_rows(kernels: str, reduce: Reduce) -> None:
    block = random_block([3, 1, 2, HUB], 30, rows=9)
    x, start = torch.randn(30, 12), torch.randn(9, 12)
    target = torch.rand(9)
    out = start.clone()
    factors = Factors(None, None, target)
    reduce_rows(out, block, x, factors, NOTHING, reduce=reduce, accumulate=True)
    close(out, expected_rows(block, x, factors, reduce, start, 9))


def test_column_slices_are_read_and_written(kernels: str) -> None:
    block = random_block([3, 0, 8], 20)
    x, out = torch.randn(20, 40), torch.zeros(3, 40)
    reduce_rows(out[:, 5:24], block, x[:, 11:30], Factors(), NOTHING)
    close(out[:, 5:24], expected_rows(block, x[:, 11:30], Factors(), "sum", None, 3))
    assert not out[:, :5].any()
    assert not out[:, 24:].any()


@pytest.mark.parametrize(
    ("kind", "slope"), [("none", 0), ("relu", 0), ("leaky_relu", 0.1), ("elu", 2)]
)
@pytest.mark.parametrize("width", [1, 17, 128])
def test_bias_and_activation(kernels: str, width: int, kind: str, slope: float) -> None:
    block = random_block([3, 0, 1, 40], 50)
    x, bias, scale = torch.randn(50, 24), torch.randn(width), torch.rand(4)
    weight = torch.randn(width, 24)
    last, exact = (
        Epilogue(bias, kind, slope, scale),
        Epilogue(bias.double(), kind, slope, scale.double()),
    )
    sums = expected_rows(block, x, Factors(), "sum", None, 4)
    expected = exact.apply_(sums @ weight.double().T)
    fused, apart, plain = (torch.empty(4, width) for _ in range(3))
    reduce_linear(fused, block, x, weight, Factors(), last)
    close(fused, expected)
    multiply(apart, sums.float(), weight, last)
    close(apart, expected)
    # In two halves, the second added to the first.
    multiply(apart, sums[:, :9].float(), weight[:, :9].contiguous(), NOTHING)
    multiply(apart, sums[:, 9:].float(), weight[:, 9:].contiguous(), last, accumulate=True)
    close(apart, expected)
    x = torch.randn(50, width)
    reduce_rows(plain, block, x, Factors(), last)
    sums = expected_rows(block, x, Factors(), "sum", None, 4)
    close(plain, exact.apply_(sums))


@pytest.mark.parametrize("width", [3, 128, 400])
def test_a_product_over_many_tiles(kernels: str, width: int) -> None:
    """Rows with and without non-zeros, and some with more than is asked for in advance."""
    lengths = torch.randint(0, 40, (3000,))
    lengths[::500] = 2000
    lengths[1500:1600] = 0
    lengths[1800:] *= torch.rand(1200) < 0.3
    block = random_block(lengths.tolist(), 700)
    x, weight, factors = torch.randn(700, width), torch.randn(9, width), Factors()
    last = Epilogue(torch.randn(9), "relu", 0.0, torch.rand(3000))
    exact = replace(last, bias=last.bias.double(), scale=last.scale.double())
    out = torch.empty(3000, 9)
    reduce_linear(out, block, x, weight, factors, last)
    sums = expected_rows(block, x, factors, "sum", None, 3000)
    close(out, exact.apply_(sums @ weight.double().T))


@pytest.mark.parametrize("width", [1, 17, 128])
def test_a_product_is_added_to_what_is_there(kernels: str, width: int) -> None:
    block = random_block([3, 0, 400, 40], 50)
    x, weight, start = torch.randn(50, 24), torch.randn(width, 24), torch.randn(4, width)
    last = Epilogue(torch.randn(width), "relu", 0.0, torch.rand(4))
    exact = replace(last, bias=last.bias.double(), scale=last.scale.double())
    out = start.clone()
    reduce_linear(out, block, x, weight, Factors(), last, accumulate=True)
    sums = expected_rows(block, x, Factors(), "sum", None, 4)
    expected = start.double() + sums @ weight.double().T
    close(out, exact.apply_(expected.clone()))
    reduce_linear(start, block, x, weight, Factors(), NOTHING, accumulate=True)
    close(start, expected)


@pytest.mark.parametrize("width", [1, 17, 128])
def test_a_share_of_other_rows_is_added(kernels: str, width: int) -> None:
    """A hub's row, which is joined from pieces, and rows without non-zeros, too."""
    block = random_block([3, 0, HUB, 40], 50)
    x, other = torch.randn(50, width), torch.randn(4, width + 3)[:, 2 : width + 2]
    factors = Factors(None, None, torch.rand(4))
    last = Epilogue(torch.randn(width), "relu", 0.0, torch.rand(4), other, 0.3)
    exact = replace(last, bias=last.bias.double(), scale=last.scale.double(), added=other.double())
    out = torch.empty(4, width)
    reduce_rows(out, block, x, factors, last)
    close(out, exact.apply_(expected_rows(block, x, factors, "sum", None, 4)))


def test_what_is_added_must_fit_and_goes_to_sums_alone() -> None:
    if native.lib is None:
        pytest.skip("torch broadcasts")
    block, x = random_block([1, 2], 5), torch.randn(5, 4)
    out = torch.empty(2, 4)
    with pytest.raises(ValueError, match="added: a value for each of out"):
        reduce_rows(out, block, x, Factors(), Epilogue(added=torch.ones(3, 4)))
    with pytest.raises(ValueError, match="added: to sums only"):
        multiply(out, torch.ones(2, 4), torch.ones(4, 4), Epilogue(added=out))


def test_factors_must_fit_the_rows() -> None:
    if native.lib is None:
        pytest.skip("torch broadcasts")
    block, x = random_block([1, 2], 5), torch.randn(5, 4)
    with pytest.raises(ValueError, match="row_scale: one for each row of out"):
        reduce_rows(torch.empty(2, 4), block, x, Factors(), Epilogue(scale=torch.ones(3)))


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("width", WIDTHS)
def test_products_of_any_shape(kernels: str, width: int, columns: int) -> None:
    for rows in (0, 1, 23, 300):
        x, weight = torch.randn(rows, columns), torch.randn(width, columns)
        out = torch.empty(rows, width)
        multiply(out, x, weight, NOTHING)
        close(out, x.double() @ weight.double().T)


@given(
    st.lists(st.sampled_from([0, 0, 1, 2, 5, 300]), max_size=60),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from(["sum", "max"]),
)
def test_native_and_torch_agree(
    lengths: list[int], width: int, weighted: bool, reduce: Reduce
) -> None:
    block = random_block(lengths, 33)
    x = torch.randn(33, width)
    factors = Factors(block.weights if weighted else None)
    out = torch.empty(len(lengths), width)
    reduce_rows(out, block, x, factors, NOTHING, reduce=reduce)
    close(out, expected_rows(block, x, factors, reduce, None, len(lengths)))


def test_products_of_no_rows(kernels: str) -> None:
    """As of a worker that loaded nothing: numpy's empty arrays have strides of 0."""
    rows = torch.from_numpy(np.empty((0, 8), np.float32))[0:5]
    out = torch.empty(0, 4)
    multiply(out, rows, torch.ones(4, 8), NOTHING)
    assert out.shape == (0, 4)


def test_empty_blocks(kernels: str) -> None:
    block = Block(None, torch.zeros(1, dtype=torch.int32), torch.zeros(0, dtype=torch.int32))
    reduce_rows(torch.empty(0, 4), block, torch.empty(0, 4), Factors(), NOTHING)
    reduce_linear(torch.empty(0, 2), block, torch.empty(0, 4), torch.ones(2, 4), Factors(), NOTHING)


def test_maxima_by_segments() -> None:
    """The path of devices without torch's sparse reduction."""
    block = random_block([3, 1, 9], 20)
    x = torch.randn(20, 5)
    (chunk,) = block.chunks()
    factors = Factors(block.weights)
    close(max_gathered(chunk, x, block.weights), expected_rows(block, x, factors, "max", None, 3))


@pytest.mark.skipif(native.lib is None, reason=native.describe())
def test_wrong_arrays_are_refused() -> None:
    good = random_block([2, 3], 10)
    x, out = torch.randn(10, 4), torch.empty(2, 4)
    with pytest.raises(ValueError, match="beyond the rows of x"):
        reduce_rows(out, good, x[: int(good.indices.max())], Factors(), NOTHING)
    with pytest.raises(ValueError, match="one row for each row"):
        reduce_rows(torch.empty(3, 4), good, x, Factors(), NOTHING)
    with pytest.raises(ValueError, match="as wide as x"):
        reduce_rows(torch.empty(2, 5), good, x, Factors(), NOTHING)
    with pytest.raises(ValueError, match="weights: one for each"):
        reduce_rows(out, good, x, Factors(torch.ones(4)), NOTHING)
    with pytest.raises(ValueError, match="one column for each"):
        multiply(out, x[:2], torch.ones(4, 5), NOTHING)
    ends, one = torch.tensor([0, 2, 1, 5], dtype=torch.int32), torch.zeros(5, dtype=torch.int32)
    for block, problem in (
        (Block(None, ends, one), "must ascend"),
        (Block(None, ends[:2], one), "from 0 to the number"),
        (Block(None, good.indptr, good.indices - 99), "not be negative"),
        (Block(torch.tensor([3, 3], dtype=torch.int32), good.indptr, good.indices), "rows: must"),
    ):
        with pytest.raises(ValueError, match=problem):
            reduce_rows(out, block, x, Factors(), NOTHING, accumulate=True)


def test_huge_tensors_are_tensors() -> None:
    large = empty((3000, 1025))
    large.fill_(2.0)
    assert large.shape == (3000, 1025)
    assert float(large.sum(dtype=torch.float64)) == 2.0 * 3000 * 1025
    assert empty((3, 4), torch.int64).dtype == torch.int64


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("others", [0, 3], ids=["without edges", "with edges"])
def test_wanted_rows_of_products_are_those_of_all(
    accumulate: bool, dtype: torch.dtype, others: int
) -> None:
    g, rows, sources, width = torch.Generator().manual_seed(8), 300, 50, 20
    wanted = torch.rand(rows, generator=g) < 0.3
    lengths = torch.randint(0, 9, (rows,), generator=g)
    lengths[~wanted] = others
    block = random_block(lengths.tolist(), sources, dtype=dtype)
    x, weight = torch.randn(sources, width, generator=g), torch.randn(7, width, generator=g)
    every = torch.randn(rows, width, generator=g)
    ones = [torch.rand(rows, generator=g) for _ in range(2)]
    factors = Factors(block.weights, torch.rand(sources, generator=g), ones[0])
    last = Epilogue(torch.randn(7, generator=g), "relu", scale=ones[1])
    before, some = torch.randn(rows, 7, generator=g), wanted.nonzero().squeeze(1)
    for of in (
        lambda out, own: reduce_linear(out, block, x, weight, factors, own, accumulate=accumulate),
        lambda out, own: multiply(out, every, weight, own, accumulate=accumulate),
    ):
        whole, part = before.clone(), before.clone()
        of(whole, last)
        of(part, replace(last, wanted=some))
        assert torch.equal(part[wanted], whole[wanted])
        assert torch.equal(part[~wanted], before[~wanted])
