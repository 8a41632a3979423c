"""PNA (Corso et al., eq. 8): several aggregators, each scaled by functions of the degree.

The first Linear of a message reads both ends side by side, so it is one for each end, applied to
nodes and not to edges: where nothing follows it, aggregators go over the sources' part alone, and
the targets' is added behind them. All towers stand side by side in one tensor.
"""

from __future__ import annotations

import torch
from torch import Tensor

from embertide.models.after import activation
from embertide.models.builder import ProgramBuilder
from embertide.models.convs.aggregation import aggregate, aggregate_messages
from embertide.models.convs.degrees import scale_by_degree
from embertide.models.options.parts import ActivationOptions
from embertide.models.options.pyg_filters import PygPna
from embertide.models.weights import Scope

LinearPair = tuple[Tensor, Tensor]
"""Weight and bias of a Linear of one tower."""
Layers = list[list[LinearPair]]
"""Of every Linear, by its place in the towers' functions, then by tower."""


def pna(b: ProgramBuilder, s: Scope, o: PygPna, x: str) -> str:
    """PNAConv; the weights tell the towers and the Linears before and behind the aggregators."""
    before, behind = _layers(s, "pre_nns"), _layers(s, "post_nns")
    means = {name: s.raw(f"aggr_module.avg_deg_{name}", 1) for name in ("lin", "log")}
    weight, bias = s.take("lin.weight", "out", "out"), s.take("lin.bias", "out")
    if before is None or behind is None or means["lin"] is None or means["log"] is None:
        return x
    width, towers = len(before[0][0][0]), len(before[0])
    s.agree("in", width * towers if o.divide_input else width)
    s.agree("parts", 1 + len(o.aggregators) * len(o.scalers))
    s.agree("parts", behind[0][0][0].shape[1] // width)
    neighbours = _aggregated(b, s, o, x, before)
    h = of_node(b, s, x, behind[0], divided=o.divide_input)
    for at, scaler in enumerate(o.scalers):
        weight_of = of_scaler(s, behind[0], at, len(o.aggregators))
        part = b.linear(neighbours, weight_of, b.widths[h])
        mean, mean_log = float(means["lin"]), float(means["log"])
        h = b.combine(h, scaled(b, part, scaler, mean=mean, mean_log=mean_log))
    for at, layer in enumerate(behind[1:], 1):
        h = h if o.act is None else activation(b, s, o.act, h)
        names = _apart(s, f"post_nns.{at}", layer)
        h = b.linear(h, names[0], b.widths[h], names[1])
    return b.linear(h, weight, s.size("out"), bias)


def _layers(s: Scope, name: str) -> Layers | None:
    """Every Linear of every tower; None where some are missing."""
    towers = count_named(s, f"{name}.{{}}.0.weight")
    places = count_named(s, f"{name}.0.{{}}.weight", 2)
    layers = []
    for place in range(places):
        dims = f"{name}.{place} rows", f"{name}.{place} columns"
        linears = [f"{name}.{tower}.{2 * place}" for tower in range(towers)]
        pairs = [(s.raw(f"{n}.weight", *dims), s.raw(f"{n}.bias", dims[0])) for n in linears]
        found = [(w, shift) for w, shift in pairs if w is not None and shift is not None]
        if len(found) < towers:
            return None
        layers.append(found)
    return layers


def count_named(s: Scope, name: str, by: int = 1) -> int:
    """How many parameters there are by these numbers; at least one, so that it can be named."""
    count = 1
    while s.has(name.format(count * by)):
        count += 1
    return count


# Before and in the aggregators.


def _aggregated(b: ProgramBuilder, s: Scope, o: PygPna, x: str, layers: Layers) -> str:
    """[N, aggregators * towers * width] of the messages to each node, one aggregator's together."""
    source, target = of_ends(b, s, x, layers[0], divided=o.divide_input)
    whole = b.widths[source]
    if len(layers) > 1:
        lines, params = _lines(s, o.act, layers[1:])
        found = [
            aggregate_messages(b, source, lines, whole, one, target=target, params=params)
            for one in o.aggregators
        ]
    else:
        found = [add_target(b, source, target, one) for one in o.aggregators]
    return b.concat(tuple(found)) if len(found) > 1 else found[0]


def of_ends(
    b: ProgramBuilder, s: Scope, x: str, layer: list[LinearPair], *, divided: bool
) -> tuple[str, str]:
    """What the first Linear, which reads the target and then the source, makes of each end.

    Args:
        divided: each tower reads a part of the columns of its own.

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
    """An aggregator of source_j + target_i, with the target's part behind it."""
    total = aggregate(b, source, aggr)
    if aggr in ("var", "std"):
        return total
    return b.combine(total, scale_by_degree(b, target, "degree" if aggr == "sum" else "any"))


def _lines(
    s: Scope, act: ActivationOptions | None, layers: Layers
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the Linears behind the first make of a message, and their parameters."""
    lines, params, last = ["a0 = add(s, t)"], list[str](), "a0"
    for at, layer in enumerate(layers, 1):
        params += _apart(s, f"pre_nns.{at}", layer)
        if act is not None:
            lines.append(f"b{at} = {_call(act, last)}")
            last = f"b{at}"
        lines.append(f"a{at} = linear({last}, p{2 * at - 2}, p{2 * at - 1})")
        last = f"a{at}"
    return (*lines, f"out = same({last})"), tuple(params)


def _call(act: ActivationOptions, name: str) -> str:
    """An activation in the words of a message's lines."""
    if act.kind == "gelu_tanh":
        return f"gelu({name}, approximate='tanh')"
    return f"{act.kind}({name})" if act.slope is None else f"{act.kind}({name}, {act.slope})"


# Behind them.


def of_node(b: ProgramBuilder, s: Scope, x: str, layer: list[LinearPair], *, divided: bool) -> str:
    """What the first Linear behind the aggregators makes of the node itself."""
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


def _apart(s: Scope, name: str, layer: list[LinearPair]) -> list[str]:
    """Names of the weight and the bias that the towers have together, each on its own part."""
    weight = torch.block_diag(*(w for w, _ in layer))
    bias = torch.cat([shift for _, shift in layer])
    return [s.put(s.name(f"{name}.weight"), weight), s.put(s.name(f"{name}.bias"), bias)]
