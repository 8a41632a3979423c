"""One softmax of any scores over the in-edges of several relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from embertide.tracing.record.edges import Edges, reduced, shares
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.traced import Traced, plain


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
