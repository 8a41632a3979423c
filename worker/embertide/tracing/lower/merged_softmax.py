"""Steps of one softmax over the in-edges of several relations (`typed.merged_softmax`)."""

from __future__ import annotations

from collections.abc import Sequence

from embertide.tracing.lower.lowering import Lowering
from embertide.tracing.lower.message_lines import Ends
from embertide.tracing.lower.values import NodeRows
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.self_loops import View
from embertide.tracing.record.traced import Node


def lower_merged(
    low: Lowering, pairs: Sequence[tuple[Node, Node]], views: Sequence[View], scope: Called
) -> NodeRows:
    """A softmax for each relation with its logarithm, merged after all of them."""
    names, (score, value) = list[str](), pairs[0]
    heads, width = int(score.value[0].numel()), int(value.value[0].numel())
    for (own_score, own_value), view in zip(pairs, views, strict=True):
        ends = Ends(low, (own_score, own_value), view)
        scores, values = ends.lines.of(own_score), ends.lines.of(own_value)
        ends.lines.finish(scores, heads, "score")
        ends.lines.finish(values, width)
        names.append(ends.step(scope, "softmax", width + heads, log_sum=True))
    return NodeRows(low.b.merge_softmax(tuple(names), width, heads))
