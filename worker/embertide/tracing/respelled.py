"""PyG's convolutions over dicts by type, relation by relation.

Their own code puts nodes or edges of all types into one tensor, which no program has. Each function
takes the place of ``forward`` while a module is recorded; the proof holds it to the module's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, leaky_relu, linear

from embertide.tracing.messages import reduced, shares
from embertide.tracing.recording import Recording
from embertide.tracing.roles import relation_of
from embertide.tracing.source import here, refuse
from embertide.tracing.tape import Traced, plain

_KEY, _QUERY, _VALUE = 0, 1, 2
"""Where HGTConv's one Linear of a node type has them."""


def hgt(
    recording: Recording, m: Any, x_dict: Mapping[str, Any], edge_index_dict: Mapping[Any, Any]
) -> dict[str, Any]:
    """HGTConv: one softmax over the in-edges of all relations into a node type."""
    count = len(m.edge_types)
    parts: dict[str, list[tuple[str, Any, Any]]] = {}
    for at, triple in enumerate(m.edge_types):
        relation = _relation(m, edge_index_dict.get(triple))
        source, _, destination = triple
        # The relation's prior and the scale of scores are factors of its keys.
        factors = m.p_rel["__".join(triple)].view(-1) / math.sqrt(m.out_channels // m.heads)
        key = _projected(
            m, x_dict, source, _KEY, _matrices(m.k_rel, at, count) * factors.view(-1, 1, 1)
        )
        value = _projected(m, x_dict, source, _VALUE, _matrices(m.v_rel, at, count))
        parts.setdefault(destination, []).append((relation, key, value))
    found = {}
    for name, of_type in parts.items():
        query = _projected(m, x_dict, name, _QUERY)
        out = m.out_lin({name: gelu(attended(recording, name, query, of_type, m.heads))})[name]
        if out.size(-1) == x_dict[name].size(-1):
            share = m.skip[name].sigmoid()
            out = share * out + (1 - share) * x_dict[name]
        found[name] = out
    return found


def _matrices(stored: Any, at: int, relations: int) -> Tensor:
    """[H, D, D] of a relation; stored head by head."""
    found: Tensor = stored.weight[at::relations]
    return found


def _projected(
    m: Any, x_dict: Mapping[str, Any], name: str, part: int, matrices: Tensor | None = None
) -> Any:
    """[N, columns] a node type's keys, queries or values.

    Args:
        matrices: [H, D, D] of a relation, which multiply them behind the type's own; both are one
            product.
    """
    lin, rows = m.kqv_lin.lins[name], slice(part * m.out_channels, (part + 1) * m.out_channels)
    weight, bias = lin.weight[rows], lin.bias[rows]
    if matrices is not None:
        matrix = torch.block_diag(*matrices)
        weight, bias = matrix.t() @ weight, bias @ matrix
    return linear(x_dict[name], weight, bias)


def attended(
    recording: Recording, name: str, query: Any, parts: list[tuple[str, Any, Any]], heads: int
) -> Traced:
    """[N, H*D] the values of all relations, weighed by one softmax of keys times queries."""
    nodes, scores, values, ends = recording.graph.counts[name], [], [], []
    for relation, key, value in parts:
        edges = recording.graph.edges[relation]
        both = plain(key)[edges.src] * plain(query)[edges.dst]
        scores.append(both.view(len(both), heads, -1).sum(dim=-1))
        values.append(plain(value)[edges.src].view(len(both), heads, -1))
        ends.append(edges.dst)
    share = shares(torch.cat(scores), torch.cat(ends), nodes)
    weighed = torch.cat(values) * share.unsqueeze(-1)
    total = reduced(weighed, torch.cat(ends), nodes, "sum").flatten(1)
    args = (
        query,
        tuple((key, value) for _, key, value in parts),
        tuple(relation for relation, _, _ in parts),
        heads,
        recording.scopes.current(),
    )
    return recording.tape.wrap(recording.tape.add("attend", args, {}, total, name))


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


def _relation(m: Any, edge_index: Any) -> str:
    found = relation_of(edge_index.node) if isinstance(edge_index, Traced) else None
    if found is None:
        raise refuse(
            here(),
            f"{type(m).__name__} is not given the graph's own edges of each of its relations",
        )
    return found
