"""Which modules are spelled out anew while they are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embertide.tracing.numbered import dgl_hgt, hetero_linear, rel_graph, rgcn, typed_linear
from embertide.tracing.respelled import han, hgt

Key = tuple[str, str]
"""Package and class of a module."""

BY_RELATION: dict[Key, Callable[..., Any]] = {
    ("torch_geometric", "HGTConv"): hgt,
    ("torch_geometric", "HANConv"): han,
}
"""Over dicts by type."""
BY_NUMBER: dict[Key, Callable[..., Any]] = {
    ("torch_geometric", "RGCNConv"): rgcn,
    ("torch_geometric", "FastRGCNConv"): rgcn,
    ("torch_geometric", "HeteroLinear"): hetero_linear,
    ("dgl", "RelGraphConv"): rel_graph,
    ("dgl", "HGTConv"): dgl_hgt,
    ("dgl", "TypedLinear"): typed_linear,
}
"""With types told by numbers."""
RESPELLED = BY_RELATION | BY_NUMBER


def key_of(module: object) -> Key:
    """Package and class of a module."""
    kind = type(module)
    return kind.__module__.partition(".")[0], kind.__name__
