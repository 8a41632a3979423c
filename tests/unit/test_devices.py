"""What runs on a GPU, as far as a machine without one can tell.

Tensors of torch's ``meta`` device have shapes and hold nothing: whatever looks at a value, or
copies one to the CPU, raises. On a GPU it would wait for all that was started before.
"""

from __future__ import annotations

import pytest
import torch
from torch.distributed.distributed_c10d import BackendConfig

from embertide.graph.landing import put_rows
from embertide.kernels import attention_torch
from embertide.kernels.block import CHUNK_EDGES, GPU_CHUNK_EDGES, Block, chunk_edges
from embertide.kernels.epilogue import NOTHING, Factors
from embertide.kernels.heads import HeadColumns, PairScore, RowSums
from embertide.kernels.rows import gather_rows
from embertide.kernels.segments import Reduce, Segments, edge_runs
from embertide.kernels.spmm import reduce_linear, reduce_rows
from embertide.kernels.staging import Staging
from embertide.launch.worker import backend

META = torch.device("meta")
ROWS, SOURCES, WIDTH, HEADS = 3, 4, 8, 2


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=META)


@pytest.fixture(params=[False, True], ids=["every row", "some rows"])
def block(request: pytest.FixtureRequest) -> Block:
    """Three rows, the second of which is empty, with five non-zeros."""
    rows = torch.arange(ROWS, dtype=torch.int32) if request.param else None
    indptr, indices = torch.tensor([0, 2, 2, 5]), torch.zeros(5, dtype=torch.int32)
    return Block(rows, indptr, indices, torch.ones(5)).upload(Staging(META))


@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_sums_look_at_no_value(block: Block, reduce: str, accumulate: bool) -> None:
    factors = Factors(block.weights, empty(SOURCES), empty(ROWS))
    out, x = empty(ROWS, WIDTH), empty(SOURCES, WIDTH)
    reduce_rows(out, block, x, factors, NOTHING, reduce=reduce, accumulate=accumulate)
    product = empty(ROWS, 2)
    reduce_linear(product, block, x, empty(2, WIDTH), factors, NOTHING, reduce=reduce)


def test_attention_looks_at_no_value(block: Block) -> None:
    x, heads = empty(SOURCES, WIDTH), HeadColumns(HEADS, WIDTH, 0, WIDTH)
    scores = attention_torch.additive_scores(empty(SOURCES, HEADS), empty(ROWS, HEADS), 0.2)
    sums = RowSums.begin(x, ROWS, heads)
    attention_torch.add_softmax(sums, block, x, scores, weighted=True)
    shares = RowSums.begin(x, ROWS, heads)
    attention_torch.add_shares(shares, block, x, empty(5, HEADS), weighted=False)
    score = PairScore(kind="dot", heads=HEADS)
    found = empty(5, HEADS)
    attention_torch.set_pair_scores(found, block, x, empty(ROWS, WIDTH), score)
    attention_torch.row_softmax_(found, block.indptr)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "var", "std", "softmax"])
def test_messages_look_at_no_value(block: Block, reduce: Reduce) -> None:
    segments = Segments(reduce, empty(0), ROWS, WIDTH, HEADS)
    for run in edge_runs(block, 4):
        edges = run.span.stop - run.span.start
        segments.add(run, empty(edges, WIDTH), empty(edges, HEADS) if reduce == "softmax" else None)


def test_buffers_are_filled_and_emptied_without_a_look() -> None:
    rows = empty(2, dtype=torch.int64)
    values = gather_rows(empty(SOURCES, WIDTH), rows, scale=empty(SOURCES), out=empty(2, WIDTH))
    put_rows(empty(ROWS, WIDTH), rows, values)


def test_row_ends_go_to_the_device_once(block: Block) -> None:
    assert block.indptr.device.type == "cpu"
    assert block.ends is block.ends
    (chunk,) = block.chunks()
    assert chunk.offsets.device == chunk.lengths.device == META


def test_a_gpu_has_larger_chunks() -> None:
    assert chunk_edges(torch.device("cpu")) == CHUNK_EDGES
    assert chunk_edges(torch.device("cuda")) == GPU_CHUNK_EDGES > CHUNK_EDGES


def test_what_is_on_the_cpu_travels_from_there() -> None:
    assert backend(torch.device("cpu")) == "gloo"
    by_device = BackendConfig(backend(torch.device("cuda"))).get_device_backend_map()
    assert by_device == {"cpu": "gloo", "cuda": "nccl"}
