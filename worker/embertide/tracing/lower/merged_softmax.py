"""Steps of one softmax over the in-edges of several relations (`typed.merged_softmax`).

Where several relations leave a node type, its keys and values are made once, and each relation's
matrices are applied at the target (`relation_heads`): the rows of the type travel once for all.
"""

from __future__ import annotations

from collections.abc import Sequence

from embertide.models.convs.shared.relation_heads import merged, turned
from embertide.tracing.lower.lowering import Lowering
from embertide.tracing.lower.message_lines import Ends
from embertide.tracing.lower.values import Rows
from embertide.tracing.record.edges import Matrices
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.self_loops import View
from embertide.tracing.record.traced import Node


def lower_attended(
    low: Lowering,
    query: Node,
    pairs: Sequence[tuple[Node, Node]],
    relations: Sequence[str],
    matrices: Sequence[Matrices | None],
    heads: int,
    scope: Called | None,
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
