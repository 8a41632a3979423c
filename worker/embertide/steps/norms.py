"""The factors that normalise a sum over in-edges."""

from __future__ import annotations

from typing import Literal

import torch

from embertide.primitives.graph import EdgeView, LayerGraph
from embertide.steps.reference import ReferenceEdges

End = Literal["in", "out"]
Norm = Literal[
    "none",
    "in",
    "out",
    "both",
    "sym_in",
    "sym_in_weighted",
    "in_weighted",
    "out_weighted",
    "both_weighted",
    "sym_out_weighted",
]
"""Normalisation of a sum over in-edges j -> i (degrees count edges of the layer graph, whole):

- ``in``: divide by max(1, in-degree(i)) (also the mean);
- ``out``: divide each x[j] by max(1, out-degree(j));
- ``both``: x[j] by sqrt(max(1, out-degree(j))), result by sqrt(max(1, in-degree(i)));
- ``sym_in``: both ends by sqrt(max(1, in-degree)) (DGL's SGConv);
- ``sym_in_weighted``: both ends by sqrt of the *weighted in-degree* after ``loops``; a degree
  of zero contributes zero (PyG's gcn_norm);
- ``in_weighted``, ``out_weighted``, ``both_weighted``: as ``in``, ``out`` and ``both`` with
  weighted degrees, of which zero contributes zero (DGL's EdgeWeightNorm ``right`` and ``both``,
  PyG's random-walk Laplacian);
- ``sym_out_weighted``: both ends by sqrt of the weighted out-degree (PyG's symmetric Laplacian).
"""

_WEIGHTED: dict[str, tuple[tuple[End, float] | None, tuple[End, float] | None]] = {
    "sym_in_weighted": (("in", -0.5), ("in", -0.5)),
    "in_weighted": (None, ("in", -1.0)),
    "out_weighted": (("out", -1.0), None),
    "both_weighted": (("out", -0.5), ("in", -0.5)),
    "sym_out_weighted": (("out", -0.5), ("out", -0.5)),
}
"""For sources and for targets, the end whose weighted degree is raised to the power."""


WITHIN_A_TYPE: tuple[Norm, ...] = ("sym_in", "sym_in_weighted", "sym_out_weighted")
"""Norms that take the same degrees of both ends, which only edges within one node type have."""


def scales_sources(norm: Norm) -> bool:
    """Whether a norm has factors of sources."""
    return norm not in ("none", "in", "in_weighted")


def counts_out(norm: Norm) -> bool:
    """Whether a norm needs out-degrees, which are counted together."""
    return norm in ("out", "both", "out_weighted", "both_weighted", "sym_out_weighted")


def weighs(norm: Norm) -> bool:
    """Whether a norm's degrees are sums of weights."""
    return norm in _WEIGHTED


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
    if norm in _WEIGHTED:
        weighted = view.edge_weight and graph.csr.weights is not None
        source, target = _WEIGHTED[norm]
        factors = {how: _power(graph, weighted, *how) for how in (source, target) if how}
        return source and factors[source], target and factors[target]
    if norm == "sym_in":
        factor = graph.in_degree().clamp_(min=1).rsqrt_()
        return factor, factor
    if norm == "in":
        return None, graph.in_degree().clamp_(min=1).reciprocal_()
    out_degree = graph.out_degree().clamp(min=1)
    if norm == "out":
        return out_degree.reciprocal(), None
    return out_degree.rsqrt(), graph.in_degree().clamp_(min=1).rsqrt_()


def _power(graph: LayerGraph, weighted: bool, end: End, exponent: float) -> torch.Tensor:
    """[N/P] a power of our rows' degrees, zero for a degree of zero. Collective for ``out``."""
    if end == "in":
        degree = graph.weighted_in_degree() if weighted else graph.in_degree()
    else:
        degree = graph.weighted_out_degree() if weighted else graph.out_degree()
    return zero_without(degree.pow(exponent))


def zero_without(factor: torch.Tensor) -> torch.Tensor:
    """The factors, zero where a degree of zero has made them infinite."""
    return factor.masked_fill_(torch.isinf(factor), 0.0)


def reference_factors(norm: Norm, edges: ReferenceEdges) -> tuple[torch.Tensor, torch.Tensor]:
    """[N] float64 factors of every node as a source and as a target."""
    every, ones = (torch.ones(n, dtype=torch.float64) for n in (edges.sources, edges.nodes))
    ends = {"in": edges.dst, "out": edges.src}
    if norm in _WEIGHTED:
        source, target = (
            plain
            if how is None
            else zero_without(edges.sum_at(ends[how[0]], edges.weight) ** how[1])
            for plain, how in zip((every, ones), _WEIGHTED[norm], strict=True)
        )
        return source, target
    into, out_of = (edges.degree(ends[end]).clamp(min=1) for end in ("in", "out"))
    match norm:
        case "in":
            return every, 1 / into
        case "out":
            return 1 / out_of, ones
        case "both":
            return out_of.pow(-0.5), into.pow(-0.5)
        case "sym_in":
            return into.pow(-0.5), into.pow(-0.5)
        case _:
            return every, ones
