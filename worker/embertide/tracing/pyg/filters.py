"""PyG's ARMAConv and ChebConv, whose own code puts nodes elsewhere than in the first dimension.

Each function takes the place of ``forward`` while a module is recorded; the proof holds it to the
module's own.
"""

from __future__ import annotations

from typing import Any

import torch

from embertide.tracing.record.edges import Edges
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import edges_of, is_weight
from embertide.tracing.record.traced import Traced, plain
from embertide.tracing.record.user_code import here, refuse


def arma(recording: Recording, m: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
    """PyG's ARMAConv, stack by stack, with any function as its activation."""
    edges = edges_given(recording, m, edge_index)
    root = _inverse_root(_degree(edges, edge_weight))
    norm = edges.source(root) * edges.target(root)
    if edge_weight is not None:
        norm = norm * edge_weight
    total: Any = 0
    for stack in range(m.num_stacks):
        out = x
        for layer in range(m.num_layers):
            at = 0 if m.shared_weights else layer
            inner = m.init_weight if layer == 0 else m.weight[0 if m.shared_weights else layer - 1]
            message = edges.source(out @ inner[stack]) * norm.view(-1, 1)
            out = edges.aggregate(message, "sum", recording.scopes.current())
            out = out + x @ m.root_weight[at][stack]
            if m.bias is not None:
                out = out + m.bias[at][stack]
            out = out if m.act is None else m.act(out)
        total = total + out
    return total / m.num_stacks


def cheb(
    recording: Recording,
    m: Any,
    x: Any,
    edge_index: Any,
    edge_weight: Any = None,
    batch: Any = None,
    lambda_max: Any = None,
) -> Any:
    """PyG's ChebConv with the Laplacian D - A, where it is given the largest eigenvalue."""
    if batch is not None or lambda_max is None or torch.as_tensor(plain(lambda_max)).numel() != 1:
        raise refuse(
            here(),
            f"{type(m).__name__} with normalization=None scales by the largest weighted degree of"
            " the graph, which differs by graph; give it one number as lambda_max and no batch, or"
            " use normalization='sym'",
        )
    passed = edges_given(recording, m, edge_index)
    edges = recording.seen(passed.view.after("remove_self_loops"))
    weight = None
    if edge_weight is not None:
        stay = plain(edge_weight)[passed.own.src != passed.own.dst]
        weight = recording.of_loops("edge_weight", edges.view, stay, 1.0)
    degree = edges.degree("out" if weight is None else "out_weight", weight).view(-1, 1)
    scale = 2.0 / float(torch.as_tensor(plain(lambda_max)))

    def apply(t: Any) -> Any:
        message = edges.source(t)
        message = message if weight is None else message * weight.view(-1, 1)
        total = edges.aggregate(message, "sum", recording.scopes.current())
        return (degree * t - total) * scale - t

    return _chebyshev(m, x, apply)


def _chebyshev(m: Any, x: Any, apply: Any) -> Any:
    before, last = x, x
    out = m.lins[0](x)
    for at, lin in enumerate(m.lins[1:]):
        before, last = last, apply(last) if at == 0 else 2.0 * apply(last) - before
        out = out + lin(last)
    return out if m.bias is None else out + m.bias


def edges_given(recording: Recording, m: Any, edge_index: Any) -> Edges:
    """The edges that a module is given, with other self-loops or not.

    Raises:
        ModelError: it is given none that are recorded.
    """
    name = edges_of(edge_index.node) if isinstance(edge_index, Traced) else None
    if name not in recording.edges:
        raise refuse(here(), f"{type(m).__name__} is given edges that are not the graph's own")
    return recording.edges[str(name)]


def _degree(edges: Edges, weight: Any) -> Any:
    """[N] the sum of the weights of in-edges."""
    if weight is None:
        return edges.degree("in")
    if not is_weight(weight.node):
        raise refuse(here(), "the weights of edges are not the graph's own; give it those")
    return edges.degree("weight", weight)


def _inverse_root(degree: Any) -> Any:
    """Zero for a degree of zero (torch_geometric's gcn_norm)."""
    return torch.where(degree > 0, degree.clamp(min=1e-300).rsqrt(), 0.0)
