"""A GPU's kernels beside cuSPARSE, torch's own operations and the memory's bandwidth.

    python -m benchmarks.gpu --scale 20

*gathered* counts the bytes of all source rows as if each came from memory: more than the copy
bandwidth means that caches help. Times are those of the GPU, medians, and all are taken in turns.
Results are compared before anything is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.dataset import rmat
from benchmarks.edges import sort_edges
from embertide.kernels import attention_torch
from embertide.kernels.attention import add_additive
from embertide.kernels.block import Block
from embertide.kernels.epilogue import NOTHING, Factors
from embertide.kernels.heads import HeadColumns, RowSums
from embertide.kernels.spmm import reduce_linear, reduce_rows
from embertide.kernels.staging import Staging

HEADS = 4
Calls = dict[str, Callable[[], Any]]


def seconds(calls: Calls, rounds: int) -> dict[str, float]:
    """Median of each call, in turns, after one that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            if number:
                taken[name].append(start.elapsed_time(end) / 1e3)
    return {name: statistics.median(values) for name, values in taken.items()}


def calls_on(device: torch.device, scale: int, width: int) -> tuple[int, Calls]:
    """Edges, and what is measured."""
    nodes = 1 << scale
    csr = sort_edges(*rmat(scale, 20 << scale), 0, nodes, nodes)
    block = Block(None, csr.indptr, csr.cols).upload(Staging(device))
    x, out = torch.randn(nodes, width, device=device), torch.empty(nodes, width, device=device)
    weight = torch.randn(width, width, device=device)
    ends = torch.randn(2, nodes, HEADS, device=device)
    heads, weights = HeadColumns(HEADS, width, 0, width), torch.ones(block.nnz, device=device)
    matrix = torch.sparse_csr_tensor(block.ends.int(), block.indices, weights, (nodes, nodes))
    factors = Factors(None, torch.rand(nodes, device=device), torch.rand(nodes, device=device))
    half, half_out = x.bfloat16(), out.bfloat16()
    picked = torch.randint(nodes, (nodes,), device=device)

    def attend() -> torch.Tensor:
        sums = RowSums.begin(x, nodes, heads)
        add_additive(sums, block, x, ends[0], ends[1], slope=0.2, weighted=False)
        return sums.out

    def attend_on_torch() -> torch.Tensor:
        sums = RowSums.begin(x, nodes, heads)
        scores = attention_torch.additive_scores(ends[0], ends[1], 0.2)
        attention_torch.add_softmax(sums, block, x, scores, weighted=False)
        return sums.out

    reduce_rows(out, block, x, Factors(), NOTHING)
    _check("sum", out, matrix @ x)
    _check("attention", attend(), attend_on_torch())
    return block.nnz, {
        "copy": lambda: out.copy_(x),
        "gather": lambda: torch.index_select(x, 0, picked, out=out),
        "sum": lambda: reduce_rows(out, block, x, Factors(), NOTHING),
        "sum, cuSPARSE": lambda: torch.sparse.mm(matrix, x),
        "sum with factors": lambda: reduce_rows(out, block, x, factors, NOTHING),
        "sum of bfloat16": lambda: reduce_rows(half_out, block, half, Factors(), NOTHING),
        "maximum": lambda: reduce_rows(out, block, x, Factors(), NOTHING, reduce="max"),
        "sum and product": lambda: reduce_linear(out, block, x, weight, factors, NOTHING),
        "product": lambda: x @ weight,
        "attention": attend,
        "attention, torch": attend_on_torch,
    }


def _check(name: str, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    if not torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max())):
        sys.exit(f"{name}: the results differ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=20, help="2^SCALE nodes, 20 edges each")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("benchmarks.gpu: torch finds no CUDA device")
    edges, calls = calls_on(torch.device("cuda"), options.scale, options.width)
    found = seconds(calls, options.rounds)
    row_bytes, nodes = 4 * options.width, 1 << options.scale
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {edges} edges")
    for name, median in found.items():
        print(f"{name:20} {median * 1e3:9.3f} ms")
    summary = {
        "copy_gb_s": round(2 * nodes * row_bytes / found["copy"] / 1e9),
        "gather_gb_s": round(2 * nodes * row_bytes / found["gather"] / 1e9),
        "sum_gathered_gb_s": round(edges * row_bytes / found["sum"] / 1e9),
        "sum_by_cusparse": round(found["sum"] / found["sum, cuSPARSE"], 3),
        "attention_by_sum": round(found["attention"] / found["sum"], 3),
        "attention_by_torch": round(found["attention"] / found["attention, torch"], 4),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
