"""What ``forward`` is passed for the features, edges and weights of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.record.one_graph import OneGraph
from embertide.tracing.record.traced import Traced
from embertide.tracing.record.user_code import here, refuse

OfTypes = Mapping[str, Mapping[str, Tensor]]
"""Role -> node type or relation -> its tensor."""


_WHAT = {"edge_weight": "weights", "edge_features": "features of edges"}
_OF_NODES = ("x", "node_id")
_PYG = {"edge_features": "edge_attr"}
"""What PyG's data call a role."""


class TypedTensors(dict[Any, Any]):
    """Tensors by node type, or by relation as a triple."""

    def __init__(self, role: str, values: Mapping[Any, Any], types: GraphTypes) -> None:
        super().__init__(values)
        self._role, self._types = role, types

    def __missing__(self, key: Any) -> Any:
        if self._role == "x":
            what = f"features of a node type {key!r}"
        elif self._role == "node_id":
            what = f"tables of a node type {key!r}, whose rows its numbers would name"
        else:
            what = f"{_WHAT.get(self._role, 'edges')} of a relation {key!r}"
        raise refuse(here(), f"there are no {what}; the graph has {self._types}")


def by_type(values: OfTypes, types: GraphTypes) -> dict[str, Any]:
    """Dicts by type, as PyG and DGL have them."""
    return {
        role: TypedTensors(
            role,
            {of if role in _OF_NODES else types.triple(of): value for of, value in of_role.items()},
            types,
        )
        for role, of_role in values.items()
    }


def of_one_type(values: OfTypes, merged: Mapping[str, Tensor]) -> dict[str, Any]:
    """Plain tensors: those of the only type and relation, or the edges of all relations.

    A role of which the graph has nothing, such as features, is left out.
    """
    tensors = {role: next(iter(of_role.values())) for role, of_role in values.items() if of_role}
    return tensors | dict(merged)


_SORTING = ("SGFormer", "Polynormer")
"""Models of PyG's that sort nodes by graph before they attend to all of them, and need numbers."""


def batch_of(module: nn.Module, counts: Mapping[str, int], x: Any) -> Any:
    """``batch`` where all nodes are of one graph: None, or zeros for models that sort by it.

    Args:
        x: the features that are passed, which are traced while the module is recorded.
    """
    kinds = {type(part).__name__ for part in module.modules()}
    if kinds.isdisjoint(_SORTING) or len(counts) > 1:
        return None
    (nodes,) = counts.values()
    return OneGraph(nodes) if isinstance(x, Traced) else torch.zeros(nodes, dtype=torch.int64)


def data_of(values: Mapping[str, Any], types: GraphTypes) -> Any:
    """PyG's ``Data`` or ``HeteroData`` of tensors, or of dicts by type."""
    from torch_geometric.data import Data, HeteroData

    if not isinstance(values.get("x"), TypedTensors):
        graph = Data(**{_PYG.get(role, role): value for role, value in values.items()})
        if "node_id" in values:
            graph.n_id = values["node_id"]
        return graph
    data = HeteroData()
    for name in types.nodes:
        data[name].x = values["x"].get(name)
        if name in values["node_id"]:
            data[name].node_id = data[name].n_id = values["node_id"][name]
    for role in ("edge_index", "edge_weight", "edge_features"):
        for triple, tensor in values.get(role, {}).items():
            data[triple][_PYG.get(role, role)] = tensor
    return data


def described(value: Any) -> str:
    """What a module returns, for messages."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, dict):
        return f"a dict of {', '.join(map(repr, value)) or 'nothing'}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {', '.join(map(described, value)) or 'nothing'}"
    return f"a {type(value).__name__}"
