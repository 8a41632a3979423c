"""GEMM by all-reduce, as in CAGNET (Deal, section 3.4, Fig. 7a; Table 1, "SOTA")."""

from __future__ import annotations

import torch

from benchmarks.engine import Engine


def all_reduce_gemm(engine: Engine, tile: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """[N/P, D/M] -> [N/P, D'/M] over a partial product of all columns.

    Every rank multiplies its columns with their rows of the weight into [N/P, D'], and the M
    ranks of a partition add up each other's columns (reduce-scatter). Receives N*D'/(P*M) *
    (M - 1) values and holds N*D'/P. Collective: every rank of the feature axis must call.

    Args:
        weight: [D', D].
    """
    columns = engine.columns(weight.shape[1])
    partial = engine.linear(tile, weight[:, columns])
    slices = [engine.columns(len(weight), m) for m in range(engine.grid.feature)]
    mine = engine.channel("feature").all_to_all([partial[:, s].contiguous() for s in slices])
    out = mine[engine.grid.m]
    for m, other in enumerate(mine):
        if m != engine.grid.m:
            out += other
    return out
