"""SDDMM by duplicated computation (Deal, section 3.4, approach (i), Table 3)."""

from __future__ import annotations

import torch

from benchmarks.engine import Engine
from embertide.graph.sources import Sources


def all_scores(
    engine: Engine,
    sources: Sources,
    keys: torch.Tensor,
    queries: torch.Tensor,
    heads: int,
) -> torch.Tensor:
    """[nnz of the partition, heads of our columns]: each of its M workers computes all scores.

    Gathers the queries of the whole partition and fetches the keys of all its sources, in the
    same groups and with the same overlap as ours. Collective: every rank must call.

    Args:
        sources: of the partition's non-zeros over whole rows.
        keys: [N/(P*M), D] of the sources' ends, as ``queries`` of the targets' ends.
    """
    gathered = engine.channel("feature").all_gather(queries)
    scores = engine.sddmm(sources, keys, torch.cat(gathered), heads)
    return engine.own_heads(scores, keys.shape[1])
