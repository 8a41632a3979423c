"""PNA (Corso et al., 2020, eq. 8): several aggregators, each scaled by functions of the degree.

    out_i = W post(x_i, all scalers x aggregators over edges j -> i of pre(x_i, x_j))

x [N, in], out [N, out]. The first Linear of a message reads both ends side by side, so it is one
for each end, applied to nodes and not to edges: where nothing follows it, aggregators go over the
sources' part alone, and the targets' is added after them. All towers stand side by side.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field

from embertide.models.after import activation
from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.aggregation import (
    aggregate_messages,
    aggregation_kind,
    are_steps,
)
from embertide.models.convs.shared.live_activations import activation_of
from embertide.models.convs.shared.pna_towers import (
    LinearPair,
    add_target,
    count_named,
    of_ends,
    of_node,
    of_scaler,
    scaled,
)
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer, Problems
from embertide.models.parts import Activation, ActivationOptions
from embertide.models.registry import convolution
from embertide.models.weights import Scope

Layers = list[list[LinearPair]]
"""Every Linear, by its place in the towers' functions, then by tower."""


def _aggregators(m: Any) -> list[str]:
    aggr = m.aggr_module.aggr
    several = getattr(aggr, "aggrs", [aggr])
    return [aggregation_kind(aggregation) for aggregation in several]


def _pna_activation(m: Any) -> ActivationOptions | None:
    """That between the Linears of a tower; where none has several, there is none."""
    tower = max((m.pre_nns[0], m.post_nns[0]), key=len)
    return activation_of(tower[1]) if len(tower) > 1 else None


@convolution(
    "pyg",
    module=KnownModule(
        read={
            "aggregators": _aggregators,
            "scalers": lambda m: m.aggr_module.scaler,
            "act": _pna_activation,
            "bias": lambda _m: True,
        },
        bias="",
        features="edge_attr",
        projection="edge_encoder",
        by_messages=lambda m: not are_steps(m.aggr_module.aggr),
    ),
)
class PygPna(Layer):
    """Several aggregators at once, each scaled by functions of the degree."""

    marks = ("pre_nns.0.0.weight",)
    module = "torch_geometric.nn.PNAConv"
    conv: Literal["pna"] = Field(description="principal neighbourhood aggregation")
    aggregators: tuple[Literal["sum", "mean", "min", "max", "var", "std"], ...] = Field(
        strict=False, min_length=1, description="as the module was given them, in order"
    )
    scalers: tuple[
        Literal["identity", "amplification", "attenuation", "linear", "inverse_linear"], ...
    ] = Field(
        strict=False,
        min_length=1,
        description="as the module was given them, in order; the weights have the mean degrees",
    )
    divide_input: bool = Field(
        default=False, description="each tower reads its own part of the columns"
    )
    act: Activation | None = Field(
        default=ActivationOptions(kind="relu"),
        description="an activation between the Linears of a tower, where there are several",
    )
    bias: Literal[True] = Field(default=True, description="all its Linears have one")

    def conflicts(self) -> Problems:
        """A message has no parameters of an activation."""
        if self.act is not None and self.act.kind == "prelu":
            return [(("act",), "prelu is not supported between the Linears of a tower")]
        return []

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """PNAConv; the weights have the towers and the Linears around the aggregators."""
        before, after = _layers(s, "pre_nns"), _layers(s, "post_nns")
        means = {name: s.raw(f"aggr_module.avg_deg_{name}", 1) for name in ("lin", "log")}
        weight, bias = s.take("lin.weight", "out", "out"), s.take("lin.bias", "out")
        if before is None or after is None or means["lin"] is None or means["log"] is None:
            return x.source
        width, towers = len(before[0][0][0]), len(before[0])
        s.agree("in", width * towers if self.divide_input else width)
        s.agree("parts", 1 + len(self.aggregators) * len(self.scalers))
        s.agree("parts", after[0][0][0].shape[1] // width)
        neighbours = _aggregated(b, s, self, x.source, before)
        h = of_node(b, s, x.source, after[0], divided=self.divide_input)
        for at, scaler in enumerate(self.scalers):
            weight_of = of_scaler(s, after[0], at, len(self.aggregators))
            part = b.linear(neighbours, weight_of, b.widths[h])
            mean, mean_log = float(means["lin"]), float(means["log"])
            h = b.combine(h, scaled(b, part, scaler, mean=mean, mean_log=mean_log))
        for at, layer in enumerate(after[1:], 1):
            h = h if self.act is None else activation(b, s, self.act, h)
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


def _lines(
    s: Scope, act: ActivationOptions | None, layers: Layers
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the Linears after the first make of a message, and their parameters."""
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


def _apart(s: Scope, name: str, layer: list[LinearPair]) -> list[str]:
    """Names of the weight and the bias that the towers have together, each on its own part."""
    weight = torch.block_diag(*(w for w, _ in layer))
    bias = torch.cat([shift for _, shift in layer])
    return [s.put(s.name(f"{name}.weight"), weight), s.put(s.name(f"{name}.bias"), bias)]
