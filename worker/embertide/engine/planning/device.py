"""The memory of a worker's GPU, compared with what its plan needs.

Where all tensors on the GPU need more, tensors of nodes are in host memory, and as many of their
columns are on the GPU at a time as fit.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from embertide.engine.planning.budget import EstimateOn, Ladder
from embertide.facts.telemetry.estimate import Estimate, MemoryBudget, PlannedSpill
from embertide.facts.telemetry.format import asked_bytes, human_bytes
from embertide.spec.manifest import EmbeddingJob

_TAKES_MORE = "with tensors in host memory it needs more there"
_GRAPH_STAYS = "the graph is on the GPU, too"
_LIBRARIES_BYTES = 1 << 30
"""What CUDA's context, NCCL and the libraries take of a worker's GPU: assumed, not measured."""
_SHARE = 0.9
"""The share of the rest that tensors may take: the allocator has gaps between them."""


def free_device_bytes(job: EmbeddingJob, workers: int) -> int | None:
    """What each of some workers on this machine may take of the GPU that it gets.

    Args:
        workers: they share the machine's GPUs evenly.

    Returns:
        None where that is not known here: no CUDA device, or layers are computed on the CPU.
    """
    if job.spec.workers.device != "cuda" or not torch.cuda.is_available():
        return None
    free, _ = torch.cuda.mem_get_info(0)
    sharing = -(-workers // torch.cuda.device_count())
    return max(1, int((free / sharing - _LIBRARIES_BYTES) * _SHARE))


def device_limit(job: EmbeddingJob, device_bytes: int | None) -> int | None:
    """What a worker may take of its GPU; None where that is not known, or it has none.

    Args:
        device_bytes: what the GPU has for it, where the job sets no amount.
    """
    if job.spec.workers.device != "cuda":
        return None
    return job.spec.workers.device_memory_bytes or device_bytes


def within_device(
    planned: Estimate,
    limit: int | None,
    nodes: int,
    widest: int,
    estimate: EstimateOn,
    staging_problem: str,
) -> Estimate:
    """An estimate with its GPU's budget, where that is known; of a run in parts, if it must.

    Args:
        limit: bytes of a GPU that a worker's tensors may take; None: unknown.
        nodes: of the largest node type, of which every worker needs one.
        widest: columns of the widest tensor.
        estimate: of the same job, also on other grids.
        staging_problem: why tensors can't be in host memory; "" where they can.
    """
    if limit is None:
        return planned
    if planned.gpu_memory_per_worker_bytes <= limit:
        budget = MemoryBudget(limit, planned.gpu_memory_per_worker_bytes)
        return replace(planned, device_budget=budget)
    spills = not staging_problem
    ladder = Ladder(_needs, limit, nodes, widest, estimate, spills, spills_graph=False)
    tried = [planned, *ladder.spilled(planned.grid)]
    least = tried[-1]
    if ladder.fits(least):
        assert least.staged is not None
        budget = MemoryBudget(limit, _needs(least), spills=_sentence(least.staged))
        return replace(least, device_budget=budget)
    least = min(tried, key=_needs)
    problem = _problem(least, limit, staging_problem, ladder.advice(planned.grid))
    budget = MemoryBudget(limit, least.gpu_memory_per_worker_bytes, problem)
    return replace(planned, device_budget=budget)


def _sentence(staged: PlannedSpill) -> str:
    return (
        f"keeps {human_bytes(staged.disk_bytes)} of each worker in host memory, {staged.panel}"
        f" columns at a time on the GPU ({human_bytes(staged.read_bytes)} copied to it,"
        f" {human_bytes(staged.written_bytes)} back)"
    )


def _needs(estimate: Estimate) -> int:
    return estimate.gpu_memory_per_worker_bytes


def _problem(least: Estimate, limit: int, staging_problem: str, advice: str) -> str:
    needed = human_bytes(least.gpu_memory_per_worker_bytes)
    why = f"; {staging_problem or _TAKES_MORE}"
    if least.staged is not None:
        why = (
            f" with tensors in host memory, of which {least.staged.largest} has most on the GPU at"
            f" a time; {_GRAPH_STAYS}"
        )
    asked = asked_bytes(least.gpu_memory_per_worker_bytes)
    return (
        f"grid {least.grid} needs {needed} of {human_bytes(limit)} on the GPU of a worker"
        f" (--gpu-memory, spec.workers.deviceMemory){why}; {advice} {asked}"
    )
