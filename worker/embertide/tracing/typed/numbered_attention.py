"""PyG's RGATConv, relation by relation: types are numbers, attention within or across them."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import leaky_relu

from embertide.tracing.record.edges import Edges
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.user_code import here, refuse
from embertide.tracing.typed.homogeneous import joined, parts_of
from embertide.tracing.typed.merged_softmax import Scored, weighed_by_all
from embertide.tracing.typed.numbered import HINT, check_count, diagonal, is_given, nothing


def rgat(
    recording: Recording,
    m: Any,
    x: Any,
    edge_index: Any,
    edge_type: Any = None,
    edge_attr: Any = None,
    size: Any = None,
    return_attention_weights: Any = None,
) -> Any:
    """RGATConv on the edges of all relations."""
    _check(m, x, edge_index, edge_type, edge_attr)
    if return_attention_weights is not None or size is not None:
        raise refuse(here(), f"{type(m).__name__} returns attention or is given a size; leave both")
    check_count(m, recording.types.relations, m.num_relations, "relations")
    parts, into = parts_of(recording, x), dict[str, list[Scored]]()
    plain, degrees = dict[str, Any](), dict[str, Any]()
    for at, relation in enumerate(recording.types.relations):
        source, destination = recording.types.ends(relation)
        edges, weight = recording.edges[relation], _weight(m, at)
        rows = parts[source] @ weight
        key, query = rows @ m.k, parts[destination] @ weight @ m.q
        own = Scored(edges, _score(m, edges, key, query), _value(m, edges.source(rows)))
        into.setdefault(destination, []).append(own)
        if m.mod in ("additive", "f-additive"):
            neighbors = edges.aggregate(edges.source(rows), "sum", recording.scopes.current())
            plain[destination] = plain.get(destination, 0) + neighbors
        if m.mod in ("scaled", "f-scaled"):
            degrees[destination] = degrees.get(destination, 0) + edges.degree("in")
    width = m.heads * m.dim * m.out_channels
    shape = (m.heads, m.out_channels) if _adds(m) else (m.heads, m.dim, m.out_channels)
    results = {}
    for name, part in parts.items():
        total = _summed(recording, m, name, into[name]) if name in into else nothing(part, width)
        total = total.view(-1, *shape)
        if name in plain:
            total = total + _beside(m, plain[name])
        if name in degrees:
            total = total * _scale(m, degrees[name].view(-1, 1))
        results[name] = m.update(total)
    return joined(recording, results)


def _adds(m: Any) -> bool:
    return bool(m.attention_mode == "additive-self-attention")


def _score(m: Any, edges: Edges, key: Any, query: Any) -> Any:
    """[E, H*d] before any softmax."""
    if _adds(m):
        return leaky_relu(edges.target(query) + edges.source(key), m.negative_slope)
    return edges.target(query) * edges.source(key)


def _value(m: Any, rows: Any) -> Any:
    """[E, H, C] of each edge's source, or [E, H, d, C] the same for each of d scores."""
    apart = rows.view(-1, m.heads, m.out_channels)
    if _adds(m):
        return apart
    return apart.unsqueeze(2).expand(-1, m.heads, m.dim, m.out_channels)


def _summed(recording: Recording, m: Any, name: str, parts: list[Scored]) -> Any:
    """[N, H*d*C] of all relations into a node type."""
    if m.attention_mechanism == "across-relation" and len(parts) > 1:
        return weighed_by_all(recording, name, parts)
    total: Any = 0
    for part in parts:
        share: Any = part.edges.softmax(part.score)
        share = share.view(-1, *part.value.shape[1:-1], 1)
        scope = recording.scopes.current()
        total = total + part.edges.aggregate(part.value * share, "sum", scope).flatten(1)
    return total


def _beside(m: Any, total: Any) -> Any:
    """[N, H, C] or [N, H, 1, C] what ``mod`` adds: the sum of the values, as each share has it."""
    total = total.view(-1, m.heads, m.out_channels)
    total = total * m.w if m.mod == "additive" else total
    return total if _adds(m) else total.unsqueeze(2)


def _scale(m: Any, degree: Any) -> Any:
    """[N, 1, C] or [N, 1, 1, C] what ``mod`` multiplies by: of [N, 1] in-edges of all relations."""
    if m.mod == "scaled":
        degree = m.activation(degree @ m.l1 + m.b1) @ m.l2 + m.b2
    return degree.unsqueeze(1) if _adds(m) else degree.unsqueeze(1).unsqueeze(1)


def _weight(m: Any, at: int) -> Tensor:
    """[D, H*C] of a relation."""
    if m.num_bases is not None:
        basis: Tensor = m.att[at] @ m.basis.flatten(1)
        return basis.view(m.basis.shape[1:])
    weight: Tensor = m.weight[at]
    return diagonal(*weight) if m.num_blocks is not None else weight


def _check(m: Any, x: Any, edge_index: Any, edge_type: Any, edge_attr: Any) -> None:
    kind = type(m).__name__
    known = is_given(x, "x") and is_given(edge_index, "edge_index")
    if not known or not is_given(edge_type, "edge_type") or edge_attr is not None:
        raise refuse(
            here(),
            f"{kind} is known with the features of all nodes as x, with edge_index and edge_type as"
            f" the graph has them, and without edge_attr; {HINT}",
        )
