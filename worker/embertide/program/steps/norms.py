"""The factors that normalise a sum over in-edges."""

from __future__ import annotations

from typing import Literal

import torch

from embertide.graph.graph import LayerGraph
from embertide.graph.views import EdgeView
from embertide.program.steps.reference import Degrees, End, ReferenceEdges

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

_Power = tuple[End, float]
"""The end whose degrees are taken, and their exponent."""

_POWERS: dict[Norm, tuple[_Power | None, _Power | None]] = {
    "none": (None, None),
    "in": (None, ("in", -1.0)),
    "out": (("out", -1.0), None),
    "both": (("out", -0.5), ("in", -0.5)),
    "sym_in": (("in", -0.5), ("in", -0.5)),
    "sym_in_weighted": (("in", -0.5), ("in", -0.5)),
    "in_weighted": (None, ("in", -1.0)),
    "out_weighted": (("out", -1.0), None),
    "both_weighted": (("out", -0.5), ("in", -0.5)),
    "sym_out_weighted": (("out", -0.5), ("out", -0.5)),
}
"""The factors of sources, and those of targets."""

WITHIN_A_TYPE: tuple[Norm, ...] = ("sym_in", "sym_in_weighted", "sym_out_weighted")
"""Norms that take the same degrees of both ends, which only edges within one node type have."""


def scales_sources(norm: Norm) -> bool:
    """Whether a norm has factors of sources."""
    return _POWERS[norm][0] is not None


def degrees_needed(norm: Norm) -> set[tuple[End, bool]]:
    """(end, whether weights are added up) of the degrees that a norm has factors of."""
    return {(power[0], weighs(norm)) for power in _POWERS[norm] if power is not None}


def weighs(norm: Norm) -> bool:
    """Whether a norm's degrees are sums of weights."""
    return norm.endswith("_weighted")


def source_factors(norm: Norm, view: EdgeView, graph: LayerGraph) -> torch.Tensor | None:
    """[N/P] factors of our rows as sources, if the norm has any.

    Collective where the norm needs out-degrees: every rank of the graph axis must call.

    Args:
        view: how the step sees the layer graph.
        graph: so seen.
    """
    return _factors(norm, _POWERS[norm][0], view, graph)


def target_factors(norm: Norm, view: EdgeView, graph: LayerGraph) -> torch.Tensor | None:
    """[N/P] factors of our rows as targets, if the norm has any."""
    return _factors(norm, _POWERS[norm][1], view, graph)


def _factors(
    norm: Norm, power: _Power | None, view: EdgeView, graph: LayerGraph
) -> torch.Tensor | None:
    if power is None:
        return None
    end, exponent = power
    if not weighs(norm):
        # The graph keeps the out-degrees for later layers.
        kept = end == "out"
        degree = graph.out_degree().clamp(min=1) if kept else graph.in_degree().clamp_(min=1)
        return degree.rsqrt_() if exponent == -0.5 else degree.reciprocal_()
    weighted = view.edge_weight and graph.csr.weighted
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
    source, target = (
        plain if power is None else _reference_power(norm, edges, ends[power[0]], power[1])
        for plain, power in zip((every, ones), _POWERS[norm], strict=True)
    )
    return source, target


def _reference_power(
    norm: Norm, edges: ReferenceEdges, at: torch.Tensor, exponent: float
) -> torch.Tensor:
    if weighs(norm):
        return _power(norm, edges.weighted_degree(at), exponent)
    return _power(norm, edges.degree(at), exponent)


def _power(norm: Norm, degree: torch.Tensor, exponent: float) -> torch.Tensor:
    return zero_without(degree**exponent) if weighs(norm) else degree.clamp(min=1) ** exponent


def degrees_read(norm: Norm) -> set[tuple[End, bool]]:
    """(end, whether weights are added up) of the degrees that do not follow from in-edges alone.

    Those of sources, and of targets the degrees that count edges out of them.
    """
    source, target = _POWERS[norm]
    read = [] if source is None else [source]
    if target is not None and target[0] == "out":
        read.append(target)
    return {(end, weighs(norm)) for end, _ in read}


def reference_source_factors(norm: Norm, degrees: Degrees) -> torch.Tensor | None:
    """[n] float64 factors of nodes as sources, by their degrees; None where the norm has none."""
    source, _ = _POWERS[norm]
    if source is None:
        return None
    return _power(norm, degrees[source[0], weighs(norm)], source[1])
