"""Modules whose ``forward`` is replaced by an equivalent one while they are recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from embertide.tracing.dgl.edge_convs import edge_weight_norm, egat
from embertide.tracing.dgl.towers import tower
from embertide.tracing.pyg.degree_convs import cluster_gcn, grouped_linear, molecular
from embertide.tracing.pyg.filters import arma, cheb
from embertide.tracing.pyg.global_attention import performer, polynormer, sgformer
from embertide.tracing.pyg.jumping import jump
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.recurrent import recurrent
from embertide.tracing.record.token_attention import multihead
from embertide.tracing.typed.hetero_convs import han, hgt
from embertide.tracing.typed.numbered import dgl_hgt, hetero_linear, rel_graph, rgcn, typed_linear
from embertide.tracing.typed.numbered_attention import rgat

Key = tuple[str, str]
"""Package and class of a module."""

BY_RELATION: dict[Key, Callable[..., Any]] = {
    ("torch_geometric", "HGTConv"): hgt,
    ("torch_geometric", "HANConv"): han,
}
"""Modules over dicts by type."""
BY_NUMBER: dict[Key, Callable[..., Any]] = {
    ("torch_geometric", "RGCNConv"): rgcn,
    ("torch_geometric", "FastRGCNConv"): rgcn,
    ("torch_geometric", "RGATConv"): rgat,
    ("torch_geometric", "HeteroLinear"): hetero_linear,
    ("dgl", "RelGraphConv"): rel_graph,
    ("dgl", "HGTConv"): dgl_hgt,
    ("dgl", "TypedLinear"): typed_linear,
}
"""Modules over all types together, with types as numbers."""
WITHIN: dict[Key, Callable[..., Any]] = {
    ("torch_geometric", "ARMAConv"): arma,
    ("torch_geometric", "ChebConv"): cheb,
    ("torch_geometric", "ClusterGCNConv"): cluster_gcn,
    ("torch_geometric", "MFConv"): molecular,
    ("dgl", "EdgeWeightNorm"): edge_weight_norm,
    ("dgl", "EGATConv"): egat,
}
"""Modules over one relation that `known` does not record as their own steps."""
OVER_ALL: dict[Key, Callable[..., Any]] = {
    ("torch_geometric", "PerformerAttention"): performer,
    ("torch_geometric", "PolynormerAttention"): polynormer,
    ("torch_geometric", "SGFormerAttention"): sgformer,
}
"""Modules over all nodes."""
PARTS = {("dgl", "PNAConvTower"), ("dgl", "DGNConvTower")}
"""Parts of a convolution, which make one layer with it."""
_RECURRENT = {("torch", "LSTM"), ("torch", "GRU")}
_JUMPS = {("torch_geometric", "JumpingKnowledge"), ("dgl", "JumpingKnowledge")}


def respelled(recording: Recording, module: Any) -> Callable[..., Any] | None:
    """What takes the place of a module's ``forward``; None for most modules."""
    key = key_of(module)
    if key in _JUMPS and module.mode == "lstm":
        return partial(jump, recording, module)
    if key == ("torch_geometric", "Linear") and hasattr(module, "groups"):
        return partial(grouped_linear, module)
    if key in _RECURRENT:
        return partial(recurrent, module)
    if key == ("torch", "MultiheadAttention"):
        return partial(multihead, module)
    if key in PARTS:
        return partial(tower, recording, module)
    replacement = BY_RELATION.get(key) or BY_NUMBER.get(key)
    replacement = replacement or WITHIN.get(key) or OVER_ALL.get(key)
    return None if replacement is None else partial(replacement, recording, module)


def key_of(module: object) -> Key:
    """Package and class of a module."""
    kind = type(module)
    return kind.__module__.partition(".")[0], kind.__name__
