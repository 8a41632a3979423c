"""Modules that number types: nodes of all types in one tensor, edges of all relations.

Each function takes the place of ``forward`` while a module is recorded, and goes type by type and
relation by relation; the proof holds it to the module's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import linear

from embertide.models.convs.shared.aggregation import REDUCES
from embertide.models.layer import Library
from embertide.tracing.dgl.homogeneous import NUMBERS, TogetherGraph
from embertide.tracing.dgl.real_graph import real_graph
from embertide.tracing.record.own_forward import forward_of
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import ALL, shaped
from embertide.tracing.record.traced import Traced, plain
from embertide.tracing.record.user_code import here, refuse
from embertide.tracing.typed.homogeneous import joined, parts_of, spans
from embertide.tracing.typed.whole import record_whole

HINT = "name the graph's node types and its relations, in the order of their numbers, by --graph"


def rgcn(recording: Recording, m: Any, x: Any, edge_index: Any, edge_type: Any = None) -> Any:
    """PyG's RGCNConv and FastRGCNConv on the edges of all relations."""
    if not (
        is_given(x, "x") and is_given(edge_index, "edge_index") and is_given(edge_type, "edge_type")
    ):
        raise refuse(
            here(),
            f"{type(m).__name__} is known with the features of all nodes as x, and with edge_index"
            f" and edge_type as the graph has them; {HINT}",
        )
    check_count(m, recording.types.relations, m.num_relations, "relations")
    if str(m.aggr) not in REDUCES:
        raise refuse(
            here(), f"{type(m).__name__} aggregates by {m.aggr!r}; known are {', '.join(REDUCES)}"
        )
    value = forward_of(m, plain(x), plain(edge_index), plain(edge_type))
    return _whole(recording, m, "pyg", x, value)


def rel_graph(
    recording: Recording,
    m: Any,
    g: Any,
    feat: Any,
    etypes: Any,
    norm: Any = None,
    *,
    presorted: bool = False,
) -> Any:
    """DGL's RelGraphConv; ``norm`` is 1 / in-edges along the relation, or the edges' weights.

    Without an argument the module reads that of the graph, if its edges have one.
    """
    del presorted
    _check_graph(m, g, feat, {"etypes": (etypes, "edge_type")})
    kind, weighted = _norm(m, g, norm)
    check_count(m, recording.types.relations, m.linear_r.num_types, "relations")
    real = real_graph(recording.graph, {}, {}, numbered=True)
    norms = recording.graph.merged["norm"] if kind == "relation" else plain(norm)
    activation, m.activation = m.activation, None
    try:
        value = forward_of(m, real, plain(feat), real.edata[NUMBERS], norms)
    finally:
        m.activation = activation
    h = _whole(recording, m, "dgl", feat, value, weighted=weighted, norm=kind)
    return m.dropout(h if activation is None else activation(h))


def _norm(m: Any, g: TogetherGraph, norm: Any) -> tuple[Literal["none", "relation"], bool]:
    """What ``model.yaml`` calls a ``norm``, and whether it is the edge weights."""
    if is_given(norm, "norm") or (norm is None and g.normed):
        return "relation", False
    if norm is None or is_given(norm, "edge_weight"):
        return "none", norm is not None
    raise refuse(
        here(),
        f"{type(m).__name__} is given a norm that was computed; known is the graph's own norm (one"
        " divided by the in-edges along the relation, as dgl.norm_by_dst) or its edge weights",
    )


def dgl_hgt(
    recording: Recording,
    m: Any,
    g: Any,
    x: Any,
    ntype: Any,
    etype: Any,
    *,
    presorted: bool = False,
) -> Any:
    """DGL's HGTConv: one softmax over the in-edges of all relations into a node type."""
    del presorted
    types = recording.types
    _check_graph(m, g, x, {"ntype": (ntype, "node_type"), "etype": (etype, "edge_type")})
    check_count(m, types.relations, len(m.relation_pri[0]), "relations")
    check_count(m, types.nodes, len(m.skip), "node types")
    real = real_graph(recording.graph, {}, {}, numbered=True)
    arguments = plain(x), real.ndata[NUMBERS], real.edata[NUMBERS]
    return _whole(recording, m, "dgl", x, forward_of(m, real, *arguments))


def typed_linear(
    recording: Recording, m: Any, x: Any, x_type: Any, sorted_by_type: bool = False
) -> Any:
    """DGL's TypedLinear on the nodes of all types."""
    del sorted_by_type
    return _by_number(recording, m, x, x_type, lambda part, at: part @ _dgl_weight(m, at))


def hetero_linear(recording: Recording, m: Any, x: Any, type_vec: Any) -> Any:
    """PyG's HeteroLinear on the nodes of all types."""

    def apply(part: Any, at: int) -> Any:
        return linear(part, m.weight[at].t(), None if m.bias is None else m.bias[at])

    return _by_number(recording, m, x, type_vec, apply)


def _by_number(
    recording: Recording, m: Any, x: Any, numbers: Any, apply: Callable[[Any, int], Any]
) -> Any:
    """A product of each node type's own."""
    if not isinstance(x, Traced) or x.node.edges or not is_given(numbers, "node_type"):
        raise refuse(
            here(),
            f"{type(m).__name__} is known on rows of nodes, with the numbers of their types as the"
            f" graph has them; {HINT}",
        )
    check_count(m, recording.types.nodes, m.num_types, "node types")
    order = list(recording.types.nodes)
    parts = parts_of(recording, x)
    return joined(recording, {name: apply(part, order.index(name)) for name, part in parts.items()})


# What they have in common.


def _whole(
    recording: Recording, m: Any, library: Library, x: Any, value: Tensor, **options: Any
) -> Any:
    """A layer over all relations that is known as a whole, on the nodes of all types.

    Args:
        value: what the module gives for all nodes.
    """
    where = spans(recording.graph)
    values = {name: value[span] for name, span in where.items()}
    relations, parts = recording.types.relations, parts_of(recording, x)
    return joined(
        recording, record_whole(recording, m, library, relations, parts, values, **options)
    )


def nothing(part: Any, width: int) -> Any:
    """Zeros for a node type to which no relation leads."""
    return linear(part, torch.zeros(width, part.shape[1]))


def _dgl_weight(m: Any, at: int) -> Tensor:
    """[D, D'] of a type, of a TypedLinear."""
    if m.regularizer != "bdd":
        weight: Tensor = m.get_weight()[at]
        return weight
    return diagonal(*m.W[at].view(m.num_bases, m.submat_in, m.submat_out))


def diagonal(*blocks: Tensor) -> Tensor:
    """A matrix of blocks."""
    matrix: Tensor = torch.block_diag(*blocks)
    return matrix


def is_given(value: Any, role: str) -> bool:
    """Whether it is what all nodes, or all edges, have: features, ends or numbers.

    Features may be computed; all nodes' are those of the only type, where there is one.
    """
    if not isinstance(value, Traced):
        return False
    if role == "x":
        return not value.node.edges
    return shaped(value.node).args[:2] == (role, ALL)


def _check_graph(m: Any, g: Any, x: Any, numbers: Mapping[str, tuple[Any, str]]) -> None:
    wrong = [name for name, (value, role) in numbers.items() if not is_given(value, role)]
    if not isinstance(g, TogetherGraph) or not is_given(x, "x") or wrong:
        what = " and ".join(wrong or ["the graph"])
        raise refuse(
            here(),
            f"{type(m).__name__} is known on the whole graph, with g.edata[dgl.ETYPE] and"
            f" g.ndata[dgl.NTYPE] as numbers of types; {what} is something else; {HINT}",
        )


def check_count(m: Any, known: Any, count: int, what: str) -> None:
    """Refuse a module for another number of types than the graph has."""
    if len(known) != count:
        raise refuse(
            here(),
            f"{type(m).__name__} has {count} {what}, but the graph has {len(known)}:"
            f" {', '.join(known)}",
        )
