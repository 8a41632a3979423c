"""The Linears of PNA's towers, all towers side by side in one tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.aggregation import aggregate
from embertide.models.convs.shared.degrees import scale_by_degree
from embertide.models.weights import Scope

LinearPair = tuple[Tensor, Tensor]
"""Weight and bias of a Linear of one tower."""


def count_named(s: Scope, name: str, by: int = 1) -> int:
    """How many parameters there are by these numbers; at least one, so that it can be named."""
    count = 1
    while s.has(name.format(count * by)):
        count += 1
    return count


def of_ends(
    b: ProgramBuilder, s: Scope, x: str, layer: list[LinearPair], *, divided: bool
) -> tuple[str, str]:
    """What the first Linear, which reads the target and then the source, makes of each end.

    Args:
        divided: each tower reads its own part of the columns.

    Returns:
        The sources' part, and the targets' with the bias.
    """
    width = len(layer[0][0])
    ends = {"target": slice(0, width), "source": slice(width, 2 * width)}
    names = {
        end: s.put(s.name(f"pre_nns.{end}"), _over_input([w[:, at] for w, _ in layer], divided))
        for end, at in ends.items()
    }
    bias = s.put(s.name("pre_nns.bias"), torch.cat([shift for _, shift in layer]))
    whole = width * len(layer)
    source = b.linear(x, names["source"], whole)
    return source, b.linear(x, names["target"], whole, bias)


def add_target(b: ProgramBuilder, source: str, target: str, aggr: str) -> str:
    """An aggregator of source_j + target_i, with the target's part added after it."""
    total = aggregate(b, source, aggr)
    if aggr in ("var", "std"):
        return total
    return b.combine(total, scale_by_degree(b, target, "degree" if aggr == "sum" else "any"))


def of_node(b: ProgramBuilder, s: Scope, x: str, layer: list[LinearPair], *, divided: bool) -> str:
    """What the first Linear after the aggregators makes of the node itself."""
    width = layer[0][0].shape[1] // s.size("parts")
    own = s.put(s.name("post_nns.own"), _over_input([w[:, :width] for w, _ in layer], divided))
    bias = s.put(s.name("post_nns.bias"), torch.cat([shift for _, shift in layer]))
    return b.linear(x, own, len(s.weights.params[bias]), bias)


def of_scaler(s: Scope, layer: list[LinearPair], scaler: int, count: int) -> str:
    """The part of its weight for all ``count`` aggregators under one scaler."""
    width = layer[0][0].shape[1] // s.size("parts")
    first = 1 + scaler * count
    parts = [
        torch.block_diag(*(w[:, at * width : (at + 1) * width] for w, _ in layer))
        for at in range(first, first + count)
    ]
    return s.put(s.name(f"post_nns.scaler.{scaler}"), torch.cat(parts, dim=1))


def scaled(b: ProgramBuilder, x: str, scaler: str, *, mean: float, mean_log: float) -> str:
    """Rows times the scaler's function of their degree.

    Args:
        mean, mean_log: of the degrees, and of log(degree + 1), in training.
    """
    match scaler:
        case "amplification":
            return scale_by_degree(b, x, "log", 1 / mean_log)
        case "attenuation":
            return scale_by_degree(b, x, "inverse_log", mean_log)
        case "linear":
            return scale_by_degree(b, x, "degree", 1 / mean)
        case "inverse_linear":
            return scale_by_degree(b, x, "inverse", mean)
    return x


def _over_input(weights: list[Tensor], divided: bool) -> Tensor:
    """One weight for all towers over the layer's input, of which each may read its own part."""
    return torch.block_diag(*weights) if divided else torch.cat(weights)
