"""One softmax over the in-edges of several relations: of keys times queries, or of any scores.

Where several relations leave a node type, its keys and values are made once, and each relation's
matrices are applied at the target (`relation_heads`): the rows of the type travel once for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from embertide.tracing.record.edges import Edges, Matrices, reduced, shares
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.traced import Traced, plain


@dataclass(frozen=True)
class OfRelation:
    """What comes along a relation.

    Attributes:
        key, value: [N, H*D] of its source type.
        matrices: None where keys and values have them already.
    """

    relation: str
    key: Any
    value: Any
    matrices: Matrices | None = None


def attended(
    recording: Recording, name: str, query: Any, parts: Sequence[OfRelation], heads: int
) -> Traced:
    """[N, H*D] the values of all relations into a node type, weighed by one softmax."""
    nodes, scores, values, ends = recording.graph.counts[name], [], [], []
    for part in parts:
        edges = recording.graph.edges[part.relation]
        key, value = (_through(part, at, heads) for at in (0, 1))
        both = key[edges.src] * plain(query).view(nodes, heads, -1)[edges.dst]
        scores.append(both.sum(dim=-1))
        values.append(value[edges.src])
        ends.append(edges.dst)
    share = shares(torch.cat(scores), torch.cat(ends), nodes)
    weighed = torch.cat(values) * share.unsqueeze(-1)
    total = reduced(weighed, torch.cat(ends), nodes, "sum").flatten(1)
    args = (
        query,
        tuple((part.key, part.value) for part in parts),
        tuple(part.relation for part in parts),
        tuple(part.matrices for part in parts),
        heads,
        recording.scopes.current(),
    )
    return recording.tape.wrap(recording.tape.add("attend", args, {}, total, name))


def _through(part: OfRelation, at: int, heads: int) -> Tensor:
    """[N, H, D] keys (0) or values (1) through a relation's matrices."""
    rows: Tensor = plain((part.key, part.value)[at])
    apart = rows.view(len(rows), heads, -1)
    if part.matrices is None:
        return apart
    through = torch.einsum("nhf,hfg->nhg", apart, part.matrices[at])
    return through * part.matrices[2] if at == 0 else through


@dataclass(frozen=True)
class Scored:
    """What comes along a relation: [E, H] scores, and [E, ...] what they weigh."""

    edges: Edges
    score: Any
    value: Any


def weighed_by_all(recording: Recording, name: str, parts: Sequence[Scored]) -> Traced:
    """[N, H*F] the values of all relations into a node type, weighed by one softmax."""
    ends, nodes = torch.cat([part.edges.own.dst for part in parts]), recording.graph.counts[name]
    scores = torch.cat([plain(part.score) for part in parts])
    values = torch.cat([plain(part.value).flatten(1) for part in parts])
    share = shares(scores, ends, nodes)
    weighed = values.view(len(values), share.shape[1], -1) * share.unsqueeze(-1)
    total = reduced(weighed, ends, nodes, "sum").flatten(1)
    pairs = tuple((part.score, part.value) for part in parts)
    args = (pairs, tuple(part.edges.view for part in parts), recording.scopes.current())
    return recording.tape.wrap(recording.tape.add("merge", args, {}, total, name))
