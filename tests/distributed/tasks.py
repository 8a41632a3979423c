"""What ranks do for the tests; light to import, like all that ranks import."""

from __future__ import annotations

import numpy as np
from world import Graph, Rank, make_features, make_job

from embertide.models.plan import Plan
from embertide.primitives.exchange import Exchange


def embed_all(
    exchange: Exchange, graphs: dict[tuple[str, bool], Graph], cases: list[tuple[Plan, str, bool]]
) -> list[np.ndarray]:
    """Our rows of every case's embeddings."""
    ranks = {key: Rank(exchange, graph, make_job(weighted=key[1])) for key, graph in graphs.items()}
    return [
        ranks[kind, weighted].embed(plan, make_features(plan.input_width))
        for plan, kind, weighted in cases
    ]
