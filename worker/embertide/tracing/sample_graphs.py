"""What PyG's data and DGL's graphs in a sample hold, as tensors by role."""

from __future__ import annotations

from typing import Any

import torch

from embertide.errors import ModelError

_OF_DATA = {
    "x": "x",
    "edge_index": "edge_index",
    "edge_weight": "edge_weight",
    "edge_attr": "edge_features",
}
"""Fields of PyG's data -> their role."""
_TENSORS = ("x", "edge_index", "edge_weight", "edge_features")


def graph_parts(role: str, name: str, value: Any) -> dict[str, Any]:
    """What an argument of ``forward`` holds for each role: tensors, or dicts of them by type.

    Raises:
        ModelError: it is no graph, or one whose features cannot be distinguished.
    """
    if role == "data":
        return _of_data(name, value)
    if role == "graph":
        return _of_dgl(name, value)
    if role == "blocks":
        raise ModelError(
            f"the sample's {name} are blocks, whose nodes are parts of a graph; leave the sample"
            " out and give width= and graph=, or a method that takes the graph"
        )
    return {role: value} if role in _TENSORS else {}


def _of_data(name: str, data: Any) -> dict[str, Any]:
    typed = hasattr(data, "edge_types")
    parts = {
        role: _field(data, f"{field}_dict" if typed else field) for field, role in _OF_DATA.items()
    }
    if parts["edge_index"] is None:
        raise ModelError(f"the sample's {name} has no edge_index; give PyG's Data or HeteroData")
    return {role: part for role, part in parts.items() if part is not None}


def _field(data: Any, field: str) -> Any:
    """A field; None where it is not set. HeteroData raises AttributeError or KeyError there."""
    try:
        value = getattr(data, field)
    except (AttributeError, KeyError):
        return None
    return value if value is not None and len(value) else None


def _of_dgl(name: str, graph: Any) -> dict[str, Any]:
    triples = getattr(graph, "canonical_etypes", None)
    if triples is None:
        raise ModelError(f"the sample's {name} is a {type(graph).__name__}; give a graph of DGL's")
    ends = {triple: torch.stack(graph.edges(etype=triple)).long() for triple in triples}
    alone = len(ends) == len(graph.ntypes) == 1
    fields = {field for kind in graph.ntypes for field in graph.nodes[kind].data}
    return {"edge_index": ends[triples[0]] if alone else ends, "node_data": sorted(fields)}
