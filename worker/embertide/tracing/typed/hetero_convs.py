"""PyG's convolutions over dicts by type, which are known as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embertide.tracing.record.own_forward import forward_of
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import edges_of
from embertide.tracing.record.traced import Traced, plain
from embertide.tracing.record.user_code import here, refuse
from embertide.tracing.typed.whole import record_whole


def hgt(
    recording: Recording, m: Any, x_dict: Mapping[str, Any], edge_index_dict: Mapping[Any, Any]
) -> dict[str, Any]:
    """HGTConv, whose weights are numbered in the order of its ``edge_types``."""
    return _whole(
        recording, m, x_dict, {triple: edge_index_dict.get(triple) for triple in m.edge_types}
    )


def han(
    recording: Recording, m: Any, x_dict: Mapping[str, Any], edge_index_dict: Mapping[Any, Any]
) -> dict[str, Any]:
    """HANConv."""
    return _whole(recording, m, x_dict, edge_index_dict)


def _whole(
    recording: Recording, m: Any, x_dict: Mapping[str, Any], edges: Mapping[Any, Any]
) -> dict[str, Any]:
    relations = [_relation(recording, m, edge_index) for edge_index in edges.values()]
    arguments = plain(dict(x_dict)), plain(dict(edges))
    values = {name: rows for name, rows in forward_of(m, *arguments).items() if rows is not None}
    ends = {name for source, _, destination in edges for name in (source, destination)}
    x = {name: rows for name, rows in x_dict.items() if name in ends}
    return record_whole(recording, m, "pyg", relations, x, values)


def _relation(recording: Recording, m: Any, edge_index: Any) -> str:
    relation = edges_of(edge_index.node) if isinstance(edge_index, Traced) else None
    if relation not in recording.types.relations:
        raise refuse(
            here(),
            f"{type(m).__name__} is not given the graph's own edges of each of its relations",
        )
    return str(relation)
