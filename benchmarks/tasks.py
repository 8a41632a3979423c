"""What the ranks of the primitives' benchmark do; imported by the fork server.

A case is one graph on one grid as one rank holds it. Every primitive is a dictionary
of variants ``(case) -> tensor``; "ours" comes first, the others are baselines of the paper.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.baselines import (
    construction,
    features,
    gemm,
    graph_exchange,
    sddmm,
    two_d,
    ungrouped,
)
from benchmarks.case import HEADS, Case, Shape
from benchmarks.edges import read_edges
from benchmarks.engine import DEPTH, Engine
from benchmarks.support.workers import World

Variant = Callable[[Case], torch.Tensor]


def _first_use(case: Case, group_rows: int) -> torch.Tensor:
    sources = case.engine.tile_sources(case.ranges, case.csr, group_rows)
    return case.engine.spmm(sources, case.tile)


def _first_graph_exchange(case: Case) -> torch.Tensor:
    pattern = graph_exchange.send_graph(case.engine, case.ranges, case.csr)
    return graph_exchange.multiply(case.engine, pattern, case.tile, case.csr.rows)


def _first_two_d(case: Case) -> torch.Tensor:
    pattern = two_d.prepare(case.engine, case.ranges, case.csr)
    return two_d.multiply(case.engine, pattern, case.tile, case.width)


def _edge_values_sent(case: Case, *, per_column: bool) -> torch.Tensor:
    return graph_exchange.multiply_weighted(
        case.engine,
        case.graph,
        case.tile,
        case.csr.rows,
        case.values,
        case.width,
        per_column=per_column,
    )


def _sddmm(case: Case) -> torch.Tensor:
    scores = case.engine.sddmm(case.own_rows, case.rows, case.rows, HEADS)
    return case.engine.gather_scores(scores, case.width)


def _construct(case: Case) -> torch.Tensor:
    _, csr = case.engine.construct(*read_edges(case.share()), case.nodes)
    return torch.cat([csr.indptr, csr.cols])


def _construct_single(case: Case) -> torch.Tensor:
    _, csr = construction.single_reader(case.engine, case.files, case.nodes)
    return torch.cat([csr.indptr, csr.cols])


PRIMITIVES: dict[str, dict[str, Variant]] = {
    "gemm": {
        "ours": lambda c: c.engine.gemm(c.ranges, c.tile, c.weight),
        "all_reduce": lambda c: gemm.all_reduce_gemm(c.engine, c.tile, c.weight),
    },
    "spmm": {
        "ours": lambda c: c.engine.spmm(c.sources, c.tile),
        "graph_exchange": lambda c: graph_exchange.multiply(c.engine, c.graph, c.tile, c.csr.rows),
        "two_d": lambda c: two_d.multiply(c.engine, c.block, c.tile, c.width),
    },
    "spmm_with_ids": {
        "ours": lambda c: _first_use(c, c.run_rows),
        "graph_exchange": _first_graph_exchange,
        "two_d": _first_two_d,
    },
    "spmm_with_edge_values": {
        "ours": lambda c: c.engine.weighted_spmm(c.sources, c.tile, c.values, c.width),
        "graph_exchange": lambda c: _edge_values_sent(c, per_column=False),
        "graph_exchange_table_2": lambda c: _edge_values_sent(c, per_column=True),
    },
    "overlap": {
        "ours": lambda c: _first_use(c, c.group_rows),
        "unpipelined": lambda c: ungrouped.unpipelined(
            c.engine, c.ranges, c.csr, c.tile, c.group_rows
        ),
        "one_exchange": lambda c: ungrouped.one_exchange(
            c.engine, c.ranges, c.csr, c.tile, c.group_rows
        ),
        "neither": lambda c: ungrouped.neither(
            c.engine, c.ranges, c.csr, c.tile, (DEPTH + 1) * c.group_rows
        ),
    },
    "sddmm": {
        "ours": _sddmm,
        "duplicated": lambda c: sddmm.all_scores(c.engine, c.whole_rows, c.rows, c.rows, HEADS),
    },
    "features": {
        "ours": lambda c: c.engine.land(
            c.ranges, c.loaded_ids, c.loaded, c.weight, c.whole_run_rows
        ),
        "redistribute": lambda c: features.redistribute_then_compute(
            c.engine, c.ranges, c.loaded_ids, c.loaded, c.weight, c.whole_run_rows
        ),
    },
    "features_summed": {
        "ours": lambda c: c.engine.sum_loaded(c.ranges, c.csr, c.loaded_ids, c.loaded, c.run_rows),
        "redistribute": lambda c: features.redistribute_then_sum(
            c.engine,
            c.ranges,
            c.csr,
            c.loaded_ids,
            c.loaded,
            batch_rows=c.whole_run_rows,
            group_rows=c.run_rows,
        ),
    },
    "construction": {"ours": _construct, "single_reader": _construct_single},
}

_state: dict[str, Case] = {}
"""This process's case; tasks come one by one and share it."""


def prepare(world: World, shape: Shape) -> dict[str, Any]:
    """Make the case that the following measurements are of. Collective: every rank must call."""
    _state.clear()
    case = _state["case"] = Case(world.rank, shape)
    return {"nonzeros": case.csr.nnz, "rows": case.csr.rows, "group_rows": case.group_rows}


def measure(_world: World, primitive: str, variant: str) -> dict[str, float]:
    """Run one variant once, from a barrier on. Collective: every rank must call.

    Returns:
        Seconds and CPU seconds, the peak of memory, what was counted, and ``wire_bytes``: what the
        network interface received meanwhile, with headers and acknowledgements.
    """
    case = _state["case"]
    work = PRIMITIVES[primitive][variant]
    _reset_peak()
    case.engine.barrier()
    case.engine.reset()
    before, wire = _resident("VmRSS"), received()
    cpu, start = time.process_time(), time.perf_counter()
    result = work(case)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    wire = received() - wire
    peak = max(0, _resident("VmHWM") - before)
    del result
    took = {"seconds": seconds, "cpu": cpu, "peak_bytes": peak, "wire_bytes": wire}
    return took | case.engine.moved()


def compare(_world: World, primitive: str, variant: str) -> float:
    """Largest difference of a variant's result from ours, as a share of our largest value.

    Collective: every rank must call.
    """
    case = _state["case"]
    ours, other = (PRIMITIVES[primitive][name](case) for name in ("ours", variant))
    if not ours.numel():
        return 0.0
    return float((ours - other).abs().max() / ours.abs().max().clamp(min=1e-30))


def bandwidth(world: World, mib: int) -> float:
    """Gbit/s that every rank receives while each sends to all. Collective."""
    engine = Engine(world.rank, world.size, 1)
    block = torch.zeros((mib << 18) // max(1, world.size - 1))
    channel = engine.channel("world")
    seconds = []
    for _ in range(3):
        engine.barrier()
        start = time.perf_counter()
        channel.all_to_all([block] * world.size)
        seconds.append(time.perf_counter() - start)
    received = block.nbytes * (world.size - 1)
    return received * 8 / float(np.median(seconds)) / 1e9


def received() -> int:
    """Bytes that have come in over all interfaces of this process's network namespace."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split(":")[1].split()[0]) for line in lines)


def _reset_peak() -> None:
    """Let the kernel count this process's peak anew."""
    if os.access("/proc/self/clear_refs", os.W_OK):
        Path("/proc/self/clear_refs").write_text("5")


def _resident(field: str) -> int:
    """Bytes of a memory figure of this process."""
    text = Path("/proc/self/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith(field + ":"))
    return int(line.split()[1]) << 10
