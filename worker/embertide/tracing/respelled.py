"""PyG's convolutions over several relations at once, relation by relation.

Their own code puts nodes or edges of all types into one tensor, which no program has. Each function
takes the place of ``forward`` while a module is recorded; the proof holds it to the module's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, leaky_relu, linear

from embertide.tracing.messages import REDUCES, reduced, shares
from embertide.tracing.recording import Recording
from embertide.tracing.roles import ALL, relation_of
from embertide.tracing.source import here, refuse
from embertide.tracing.tape import Traced, plain


def hgt(
    recording: Recording, m: Any, x_dict: Mapping[str, Any], edge_index_dict: Mapping[Any, Any]
) -> dict[str, Any]:
    """HGTConv: one softmax over the in-edges of all relations into a node type."""
    heads, columns = m.heads, m.out_channels
    width = columns // heads
    queries = {}
    parts: dict[str, list[tuple[str, Any, Any]]] = {}
    for at, triple in enumerate(m.edge_types):
        relation = _relation(m, edge_index_dict.get(triple))
        edges, (source, _, destination) = recording.edges[relation], triple
        if destination not in queries:
            queries[destination] = _projected(m, x_dict, destination, 1)
        both = edges.source(_projected(m, x_dict, source, 0, 2, at=at))
        key, value = both[:, :columns], both[:, columns:]
        scale = m.p_rel["__".join(triple)] / math.sqrt(width)
        pairs = edges.target(queries[destination]) * key
        score = pairs.view(-1, heads, width).sum(dim=-1) * scale
        parts.setdefault(destination, []).append((relation, score, value.view(-1, heads, width)))
    found = {}
    for name, of_type in parts.items():
        out = m.out_lin({name: gelu(_attended(recording, name, of_type))})[name]
        if out.size(-1) == x_dict[name].size(-1):
            share = m.skip[name].sigmoid()
            out = share * out + (1 - share) * x_dict[name]
        found[name] = out
    return found


def _projected(
    m: Any, x_dict: Mapping[str, Any], name: str, *which: int, at: int | None = None
) -> Any:
    """[N, columns] a node type's keys (0), queries (1) or values (2), or several side by side.

    Args:
        at: the relation whose own matrices multiply keys and values behind the type's; both are
            one product.
    """
    lin, columns = m.kqv_lin.lins[name], m.out_channels
    weights, biases = [], []
    for part in which:
        rows = slice(part * columns, (part + 1) * columns)
        weight, bias = lin.weight[rows], lin.bias[rows]
        if at is not None:
            of_relation = (m.k_rel if part == 0 else m.v_rel).weight
            own = [of_relation[head * len(m.edge_types) + at] for head in range(m.heads)]
            matrix = _diagonal(*own)
            weight, bias = matrix.t() @ weight, bias @ matrix
        weights.append(weight)
        biases.append(bias)
    return linear(x_dict[name], torch.cat(weights), torch.cat(biases))


def _attended(recording: Recording, name: str, parts: list[tuple[str, Any, Any]]) -> Traced:
    """[N, H*D] the messages of all relations, weighed by one softmax."""
    nodes = recording.graph.counts[name]
    ends = torch.cat([recording.graph.edges[relation].dst for relation, _, _ in parts])
    share = shares(torch.cat([plain(score) for _, score, _ in parts]), ends, nodes)
    messages = torch.cat([plain(message) for _, _, message in parts])
    value = reduced(messages * share.unsqueeze(-1), ends, nodes, "sum").flatten(1)
    args = (
        tuple((score, message) for _, score, message in parts),
        tuple(relation for relation, _, _ in parts),
        recording.scopes.current(),
    )
    return recording.tape.wrap(recording.tape.add("attend", args, {}, value, name))


def han(
    recording: Recording, m: Any, x_dict: Mapping[str, Any], edge_index_dict: Mapping[Any, Any]
) -> dict[str, Any]:
    """HANConv: attention within each relation, then shares of relations for all nodes alike."""
    rows = {
        name: m.proj[name](x).view(-1, m.heads, m.out_channels // m.heads)
        for name, x in x_dict.items()
    }
    parts: dict[str, list[Any]] = {}
    for triple, edge_index in edge_index_dict.items():
        edges, stored = recording.edges[_relation(m, edge_index)], "__".join(triple)
        source, target = rows[triple[0]], rows[triple[2]]
        own = (source * m.lin_src[stored]).sum(dim=-1), (target * m.lin_dst[stored]).sum(dim=-1)
        score = leaky_relu(edges.source(own[0]) + edges.target(own[1]), m.negative_slope)
        message = edges.source(source) * edges.softmax(score).unsqueeze(-1)
        total = edges.aggregate(message, "sum", recording.scopes.current())
        parts.setdefault(triple[2], []).append(total.flatten(1).relu())
    return {name: _shared(recording, m, name, made) for name, made in parts.items()}


def _shared(recording: Recording, m: Any, name: str, made: list[Any]) -> Any:
    """[N, D] relations' results, weighed by one share for each, of a mean over all nodes."""
    if len(made) == 1:
        return made[0]
    stacked, weight, bias = torch.stack(plain(made)), m.k_lin.weight, m.k_lin.bias
    keys = linear(stacked, weight, bias).tanh().mean(dim=1)
    share = (m.q * keys).sum(dim=-1).softmax(dim=0)
    value = (share.view(-1, 1, 1) * stacked).sum(dim=0)
    args = (tuple(made), weight, m.q, bias)
    return recording.tape.wrap(recording.tape.add("semantic", args, {}, value, name))


def rgcn(recording: Recording, m: Any, x: Any, edge_index: Any, edge_type: Any = None) -> Any:
    """RGCNConv and FastRGCNConv on the edges of all relations, by their numbers."""
    found = relation_of(edge_index.node) if isinstance(edge_index, Traced) else None
    kinds = edge_type.node if isinstance(edge_type, Traced) else None
    relations = recording.types.relations
    merged = found == ALL and kinds is not None and kinds.args == ("edge_type", ALL)
    if not merged or not isinstance(x, Traced):
        raise refuse(
            here(),
            f"{type(m).__name__} is known with the features of all nodes as x, and with edge_index"
            " and edge_type as the graph has them; name the graph's one node type and its"
            " relations, in the order of their numbers, by --graph",
        )
    if len(relations) != m.num_relations:
        raise refuse(
            here(),
            f"{type(m).__name__} has {m.num_relations} relations, but the graph has"
            f" {len(relations)}: {', '.join(relations)}",
        )
    out: Any = 0
    for at, relation in enumerate(relations):
        edges = recording.edges[relation]
        reduce = REDUCES[str(m.aggr)]
        total = edges.aggregate(edges.source(x), reduce, recording.scopes.current())
        out = out + total @ _weight(m, at)
    if m.root is not None:
        out = out + x @ m.root
    return out if m.bias is None else out + m.bias


def _weight(m: Any, at: int) -> Tensor:
    """[D, D'] of a relation."""
    weight: Tensor = m.weight
    if m.num_bases is not None:
        basis: Tensor = m.comp[at] @ weight.flatten(1)
        return basis.view(weight.shape[1:])
    return _diagonal(*weight[at]) if m.num_blocks is not None else weight[at]


def _diagonal(*blocks: Tensor) -> Tensor:
    found: Tensor = torch.block_diag(*blocks)
    return found


def _relation(m: Any, edge_index: Any) -> str:
    found = relation_of(edge_index.node) if isinstance(edge_index, Traced) else None
    if found is None:
        raise refuse(
            here(),
            f"{type(m).__name__} is not given the graph's own edges of each of its relations",
        )
    return found


RESPELLED: dict[str, Callable[..., Any]] = {
    "HGTConv": hgt,
    "HANConv": han,
    "RGCNConv": rgcn,
    "FastRGCNConv": rgcn,
}
"""By class; of PyG."""
