"""PyG's convolutions over dicts by type, relation by relation.

Their own code puts nodes or edges of all types into one tensor, which no program has. Each function
takes the place of ``forward`` while a module is recorded; the proof holds it to the module's own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, leaky_relu, linear

from embertide.tracing.record.edges import Matrices
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import edges_of
from embertide.tracing.record.traced import Traced, plain
from embertide.tracing.record.user_code import here, refuse
from embertide.tracing.typed.merged_softmax import OfRelation, attended

_KEY, _QUERY, _VALUE = 0, 1, 2
"""Where HGTConv's one Linear of a node type has them."""


def hgt(
    recording: Recording, m: Any, x_dict: Mapping[str, Any], edge_index_dict: Mapping[Any, Any]
) -> dict[str, Any]:
    """HGTConv: one softmax over the in-edges of all relations into a node type."""
    count, parts = len(m.edge_types), dict[str, list[OfRelation]]()
    leaving = Counter(source for source, _, _ in m.edge_types)
    made: dict[str, Any] = {
        name: tuple(linear(x_dict[name], *_of_kqv(m, name, part)) for part in (_KEY, _VALUE))
        for name, relations in leaving.items()
        if relations > 1
    }
    for at, triple in enumerate(m.edge_types):
        relation = _relation(recording, m, edge_index_dict.get(triple))
        source, _, destination = triple
        # The relation's prior and the scale of scores.
        prior = m.p_rel["__".join(triple)].view(-1, 1) / math.sqrt(m.out_channels // m.heads)
        matrices = _matrices(m.k_rel, at, count), _matrices(m.v_rel, at, count), prior
        if source in made:
            key, value = made[source]
            own = OfRelation(relation, key, value, matrices)
        else:
            own = OfRelation(relation, *_folded(m, x_dict[source], source, matrices))
        parts.setdefault(destination, []).append(own)
    found = {}
    for name, of_type in parts.items():
        query = linear(x_dict[name], *_of_kqv(m, name, _QUERY))
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


def _of_kqv(m: Any, name: str, part: int) -> tuple[Tensor, Tensor]:
    """Weight and bias of keys, queries or values of a node type."""
    lin, rows = m.kqv_lin.lins[name], slice(part * m.out_channels, (part + 1) * m.out_channels)
    return lin.weight[rows], lin.bias[rows]


def _folded(m: Any, x: Any, name: str, matrices: Matrices) -> tuple[Any, Any]:
    """[N, H*D] keys and values through a relation's matrices, each one product."""
    of_key, of_value, prior = matrices
    found = []
    for part, of_heads in ((_KEY, of_key * prior.unsqueeze(-1)), (_VALUE, of_value)):
        (weight, bias), matrix = _of_kqv(m, name, part), torch.block_diag(*of_heads)
        found.append(linear(x, matrix.t() @ weight, bias @ matrix))
    return found[0], found[1]


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
        edges, stored = recording.edges[_relation(recording, m, edge_index)], "__".join(triple)
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


def _relation(recording: Recording, m: Any, edge_index: Any) -> str:
    found = edges_of(edge_index.node) if isinstance(edge_index, Traced) else None
    if found not in recording.types.relations:
        raise refuse(
            here(),
            f"{type(m).__name__} is not given the graph's own edges of each of its relations",
        )
    return str(found)
