"""The factors that normalise a sum over in-edges."""

from __future__ import annotations

import torch

from embertide.models.program import Aggregate
from embertide.primitives.graph import LayerGraph


def norms(step: Aggregate, graph: LayerGraph) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Factors of our rows as sources and as targets, [N/P] each.

    Collective where the norm needs out-degrees: every rank of the graph axis must call.

    Args:
        graph: as the step sees it.
    """
    if step.norm == "none":
        return None, None
    if step.norm == "sym_in_weighted":
        weighted = step.edge_weight and graph.csr.weights is not None
        degree = graph.weighted_in_degree() if weighted else graph.in_degree()
        factor = degree.rsqrt()
        factor.masked_fill_(torch.isinf(factor), 0.0)
        return factor, factor
    if step.norm == "sym_in":
        factor = graph.in_degree().clamp_(min=1).rsqrt_()
        return factor, factor
    if step.norm == "in":
        return None, graph.in_degree().clamp_(min=1).reciprocal_()
    out_degree = graph.out_degree().clamp(min=1)
    if step.norm == "out":
        return out_degree.reciprocal(), None
    return out_degree.rsqrt(), graph.in_degree().clamp_(min=1).rsqrt_()
