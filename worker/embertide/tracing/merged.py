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

from embertide.models.convs.relation_heads import merged, turned
from embertide.tracing.lower import Lowering
from embertide.tracing.message_lines import Ends
from embertide.tracing.messages import Edges, reduced, shares
from embertide.tracing.recording import Recording
from embertide.tracing.scopes import Called
from embertide.tracing.traced import Node, Traced, plain
from embertide.tracing.values import Rows
from embertide.tracing.views import View

Matrices = tuple[Tensor, Tensor, Tensor]
"""Of a relation: K_r and V_r [H, D, D], and [H, 1] what multiplies its scores."""


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


def lower_attended(
    low: Lowering,
    query: Node,
    pairs: Sequence[tuple[Node, Node]],
    relations: Sequence[str],
    matrices: Sequence[Matrices | None],
    heads: int,
    scope: Called,
) -> Rows:
    """A step for each relation; those with matrices of their own are merged behind all.

    Args:
        pairs: of each relation its keys and its values.
    """
    named = [tuple(_rows_of(low, one) for one in pair) for pair in pairs]
    asked = _rows_of(low, query)
    low.begin(scope)
    if all(of_relation is None for of_relation in matrices):
        return Rows(_in_turn(low, asked, named, relations, heads))
    each = heads, low.b.widths[asked] // heads
    parts, behind = list[str](), list[str | None]()
    for (key, value), relation, own in zip(named, relations, matrices, strict=True):
        with low.over(relation):
            turned_query = asked
            if own is not None:
                names = low.constant(own[0], "key"), low.constant(own[2], "prior")
                turned_query = turned(low.b, asked, *names, each)
            made = low.b.pair_attend(value, turned_query, heads, kind="dot", key=key, log_sum=True)
        parts.append(made)
        behind.append(None if own is None else low.constant(own[1], "value"))
    return Rows(merged(low.b, parts, behind, each))


def _in_turn(
    low: Lowering,
    query: str,
    pairs: Sequence[tuple[str, ...]],
    relations: Sequence[str],
    heads: int,
) -> str:
    """Each relation's softmax goes on where the one before ended."""
    made = None
    for at, ((key, value), relation) in enumerate(zip(pairs, relations, strict=True), 1):
        last = at == len(pairs)
        with low.over(relation):
            made = low.b.pair_attend(
                value, query, heads, kind="dot", key=key, before=made, log_sum=not last
            )
    assert made is not None
    return made


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


def lower_merged(
    low: Lowering, pairs: Sequence[tuple[Node, Node]], views: Sequence[View], scope: Called
) -> Rows:
    """A softmax of each relation's own with its logarithm, merged behind all."""
    names, (score, value) = list[str](), pairs[0]
    heads, width = int(score.value[0].numel()), int(value.value[0].numel())
    for (own_score, own_value), view in zip(pairs, views, strict=True):
        ends = Ends(low, (own_score, own_value), view)
        scores, values = ends.lines.of(own_score), ends.lines.of(own_value)
        ends.lines.finish(scores, heads, "score")
        ends.lines.finish(values, width)
        names.append(ends.step(scope, "softmax", width + heads, log_sum=True))
    return Rows(low.b.merge_softmax(tuple(names), width, heads))


def _rows_of(low: Lowering, node: Node) -> str:
    return low.name(low.rows(node, low.values.get(node)))
