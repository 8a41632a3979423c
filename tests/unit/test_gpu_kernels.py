"""A GPU's kernels against float64 loops: on the GPU, or by Triton's interpreter where none is.

``tests/conftest.py`` chooses the interpreter.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="torch's build for CPUs comes without Triton")

from embertide.kernels import gpu, native, pieces
from embertide.kernels.attention import add_additive
from embertide.kernels.block import Block
from embertide.kernels.epilogue import NOTHING, Epilogue, Factors
from embertide.kernels.gpu import attention, spmm
from embertide.kernels.heads import NO_SCORES, HeadColumns, RowSums
from embertide.kernels.spmm import reduce_linear, reduce_rows
from tests.support.exact import assert_exact
from tests.unit.test_native_spmm import expected_rows, random_block

pytestmark = pytest.mark.tier(2)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SOURCES = 20
SHORT = [3, 0, 8, 1, 9]
LONG = [3, 0, 4 * pieces.PIECE_EDGES + 5, 1, pieces.PIECE_EDGES + 1, pieces.PIECE_EDGES]


def on_device(given: Any) -> Any:
    """A block, factors or an epilogue with its tensors where the kernels are."""
    moved = type(given).__new__(type(given))
    for name, value in vars(given).items():
        stays = not isinstance(value, torch.Tensor) or name == "indptr"
        object.__setattr__(moved, name, value if stays else value.to(DEVICE))
    return moved


@pytest.mark.parametrize("lengths", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("width", [1, 17, 128, 130])
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_rows_are_reduced(lengths: list[int], width: int, reduce: str) -> None:
    block = random_block(lengths, SOURCES)
    x = torch.randn(SOURCES, width + 2)[:, 2:]
    factors = Factors(block.weights, torch.rand(SOURCES), torch.rand(len(lengths)) + 0.5)
    out = torch.full((len(lengths), width), torch.nan, device=DEVICE)
    args = on_device(block), x.to(DEVICE), on_device(factors), NOTHING
    spmm.reduce_rows(out, *args, largest=reduce == "max")
    assert_exact(out.cpu(), expected_rows(block, x, factors, reduce, None, len(lengths)))


@pytest.mark.parametrize("lengths", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_some_rows_are_joined_with_what_is_there(lengths: list[int], reduce: str) -> None:
    rows, width = 2 * len(lengths), 24
    block = random_block(lengths, SOURCES, dtype=torch.int64, rows=rows)
    x, before = torch.randn(SOURCES, width), torch.randn(rows, width)
    factors = Factors(None, torch.rand(SOURCES), torch.rand(rows) + 0.5)
    out = before.clone().to(DEVICE)
    args = on_device(block), x.to(DEVICE), on_device(factors), NOTHING
    spmm.reduce_rows(out, *args, largest=reduce == "max", accumulate=True, empty=-torch.inf)
    assert_exact(out.cpu(), expected_rows(block, x, factors, reduce, before, rows))


@pytest.mark.parametrize("activation", ["none", "relu", "leaky_relu", "elu"])
@pytest.mark.parametrize("lengths", [SHORT, LONG], ids=["short", "long"])
def test_finished_rows_have_the_epilogue(lengths: list[int], activation: str) -> None:
    rows, width = len(lengths), 24
    block, x = random_block(lengths, SOURCES), torch.randn(SOURCES, width)
    last = Epilogue(
        bias=torch.randn(width),
        activation=activation,
        slope=0.3,
        scale=torch.rand(rows),
        added=torch.randn(rows, width),
        share=0.7,
    )
    out = torch.empty(rows, width, device=DEVICE)
    args = on_device(block), x.to(DEVICE), Factors(), on_device(last)
    spmm.reduce_rows(out, *args, largest=False)
    sums = expected_rows(block, x, Factors(), "sum", None, rows)
    assert_exact(out.cpu(), last.apply_(sums.float()))


def test_a_maximum_of_none_is_as_given() -> None:
    block, x = on_device(random_block([2, 0], SOURCES)), torch.randn(SOURCES, 4, device=DEVICE)
    out = torch.empty(2, 4, device=DEVICE)
    spmm.reduce_rows(out, block, x, Factors(), NOTHING, largest=True, empty=-7.0)
    assert (out[1] == -7.0).all()


def test_rows_may_be_bfloat16() -> None:
    block = random_block(LONG, SOURCES)
    x = torch.randn(SOURCES, 32).bfloat16()
    out = torch.empty(len(LONG), 32, dtype=torch.bfloat16, device=DEVICE)
    args = on_device(block), x.to(DEVICE), Factors(), NOTHING
    spmm.reduce_rows(out, *args, largest=False)
    expected = expected_rows(block, x, Factors(), "sum", None, len(LONG))
    # Triton's interpreter cuts the last bits off, where a GPU rounds.
    assert float((out.cpu() - expected).abs().max() / expected.abs().max()) < 2**-7


@pytest.mark.parametrize("lengths", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize(
    "heads",
    [HeadColumns(3, 24, 0, 24), HeadColumns(3, 24, 4, 14), HeadColumns(1, 300, 0, 300)],
    ids=["whole heads", "parts of heads", "a wide head"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_attention_over_two_blocks(lengths: list[int], heads: HeadColumns, weighted: bool) -> None:
    rows, width = len(lengths), heads.stop - heads.start
    first, second = random_block(lengths, SOURCES), random_block(lengths[:-1], SOURCES, rows=rows)
    x, source = torch.randn(SOURCES, width), torch.randn(SOURCES, heads.count)
    target = torch.randn(rows, heads.count)
    sums = RowSums.begin(x.to(DEVICE), rows, heads, softmax_blocks=2)
    for block in (first, second):
        placed = on_device(block)
        attention.add_additive(
            sums,
            placed,
            *(tensor.to(DEVICE) for tensor in (x, source, target)),
            slope=0.2,
            weights=placed.weights if weighted else None,
        )
        sums.fresh = False
    expected, logs = attended([first, second], x, source, target, heads, weighted)
    assert_exact(sums.out.cpu(), expected)
    found, some = sums.logs().cpu(), logs > NO_SCORES
    assert (found[~some] == NO_SCORES).all()
    assert_exact(found[some], logs[some])


@pytest.mark.parametrize("lengths", [SHORT, LONG], ids=["short", "long"])
def test_attention_over_one_block_keeps_no_state(lengths: list[int]) -> None:
    heads, block = HeadColumns(2, 16, 0, 16), random_block(lengths, SOURCES)
    x, source = torch.randn(SOURCES, 16), 30 * torch.randn(SOURCES, 2)
    target = torch.randn(len(lengths), 2)
    sums = RowSums.begin(x.to(DEVICE), len(lengths), heads)
    tensors = (tensor.to(DEVICE) for tensor in (x, source, target))
    attention.add_additive(sums, on_device(block), *tensors, slope=0.2, weights=None)
    assert sums.top is None
    assert_exact(sums.out.cpu(), attended([block], x, source, target, heads, False)[0])


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have these kernels chosen as on a GPU, also where there is none."""
    monkeypatch.setattr(gpu, "usable", lambda device: True)
    monkeypatch.setattr(native, "lib", None)


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("most", [1, 100])
def test_rows_are_multiplied_part_by_part(
    monkeypatch: pytest.MonkeyPatch, reduce: str, accumulate: bool, most: int
) -> None:
    monkeypatch.setattr("embertide.kernels.block.GPU_PART_EDGES", pieces.PIECE_EDGES)
    monkeypatch.setattr("embertide.kernels.block.GPU_PART_ROWS", most)
    rows, width = len(LONG), 24
    block, x = random_block(LONG, SOURCES), torch.randn(SOURCES, width)
    weight, before = torch.randn(10, width), torch.randn(rows, 10)
    factors = Factors(block.weights, torch.rand(SOURCES), torch.rand(rows) + 0.5)
    last = Epilogue(bias=torch.randn(10), activation="relu", scale=torch.rand(rows))
    out = before.clone().to(DEVICE)
    args = on_device(block), x.to(DEVICE), weight.to(DEVICE), on_device(factors), on_device(last)
    reduce_linear(out, *args, reduce=reduce, accumulate=accumulate)
    products = expected_rows(block, x, factors, reduce, None, rows) @ weight.double().T
    assert_exact(out.cpu(), last.apply_((products + before * accumulate).float()))
    assert max(len(part.indptr) - 1 for _, part in args[0].parts) <= most


@pytest.mark.usefixtures("chosen")
def test_the_same_functions_choose_these_kernels() -> None:
    block, x = random_block(SHORT, SOURCES), torch.randn(SOURCES, 16)
    placed, sources = on_device(block), x.to(DEVICE)
    out = torch.empty(len(SHORT), 16, device=DEVICE)
    reduce_rows(out, placed, sources, Factors(), NOTHING)
    assert_exact(out.cpu(), expected_rows(block, x, Factors(), "sum", None, len(SHORT)))
    heads, source, target = HeadColumns(2, 16, 0, 16), torch.randn(SOURCES, 2), torch.randn(5, 2)
    sums = RowSums.begin(sources, len(SHORT), heads)
    ends = source.to(DEVICE), target.to(DEVICE)
    add_additive(sums, placed, sources, *ends, slope=0.2, weighted=True)
    assert_exact(sums.out.cpu(), attended([block], x, source, target, heads, True)[0])


def attended(
    blocks: list[Block],
    x: torch.Tensor,
    source: torch.Tensor,
    target: torch.Tensor,
    heads: HeadColumns,
    weighted: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Results and logarithms of the sums of exp(score), row by row in float64."""
    out = torch.zeros(len(target), x.shape[1], dtype=torch.float64)
    logs = torch.full((len(target), heads.count), NO_SCORES, dtype=torch.float64)
    for row in range(len(target)):
        spans = [(block, span_of(block, row)) for block in blocks]
        edges = torch.cat([block.indices[span].long() for block, span in spans])
        weights = torch.cat([given(block, span, weighted) for block, span in spans])
        if not len(edges):
            continue
        scores = source[edges].double() + target[row].double()
        scores = torch.where(scores > 0, scores, 0.2 * scores)
        logs[row] = scores.logsumexp(0)
        shares = (scores - logs[row]).exp() * weights.unsqueeze(1)
        for head, columns in heads.each():
            out[row, columns] = shares[:, head] @ x[edges][:, columns].double()
    return out, logs


def span_of(block: Block, row: int) -> slice:
    at = row if block.rows is None else block.rows.tolist().index(row) if row in block.rows else -1
    return slice(0, 0) if at < 0 else slice(int(block.indptr[at]), int(block.indptr[at + 1]))


def given(block: Block, span: slice, weighted: bool) -> torch.Tensor:
    assert block.weights is not None
    weights = block.weights[span].double()
    return weights if weighted else torch.ones_like(weights)
