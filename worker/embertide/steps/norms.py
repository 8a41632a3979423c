"""The factors that normalise a sum over in-edges."""

from __future__ import annotations

from typing import Literal

import torch

from embertide.primitives.graph import EdgeView, LayerGraph

Norm = Literal["none", "in", "out", "both", "sym_in", "sym_in_weighted"]
"""Normalisation of a sum over in-edges j -> i (degrees count edges of the layer graph, whole):

- ``in``: divide by max(1, in-degree(i)) (also the mean);
- ``out``: divide each x[j] by max(1, out-degree(j));
- ``both``: x[j] by sqrt(max(1, out-degree(j))), result by sqrt(max(1, in-degree(i)));
- ``sym_in``: both ends by sqrt(max(1, in-degree)) (DGL's SGConv);
- ``sym_in_weighted``: both ends by sqrt of the *weighted in-degree* after ``loops``; a degree
  of zero contributes zero (PyG's gcn_norm).
"""


def scales_sources(norm: Norm) -> bool:
    """Whether a norm has factors of sources."""
    return norm not in ("none", "in")


def counts_out(norm: Norm) -> bool:
    """Whether a norm needs out-degrees, which are counted together."""
    return norm in ("out", "both")


def norm_factors(
    norm: Norm, view: EdgeView, graph: LayerGraph
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Factors of our rows as sources and as targets, [N/P] each.

    Collective where the norm needs out-degrees: every rank of the graph axis must call.

    Args:
        view: how the step sees the layer graph.
        graph: so seen.
    """
    if norm == "none":
        return None, None
    if norm == "sym_in_weighted":
        weighted = view.edge_weight and graph.csr.weights is not None
        degree = graph.weighted_in_degree() if weighted else graph.in_degree()
        factor = degree.rsqrt()
        factor.masked_fill_(torch.isinf(factor), 0.0)
        return factor, factor
    if norm == "sym_in":
        factor = graph.in_degree().clamp_(min=1).rsqrt_()
        return factor, factor
    if norm == "in":
        return None, graph.in_degree().clamp_(min=1).reciprocal_()
    out_degree = graph.out_degree().clamp(min=1)
    if norm == "out":
        return out_degree.reciprocal(), None
    return out_degree.rsqrt(), graph.in_degree().clamp_(min=1).rsqrt_()
