"""DGL's PNAConv: every tower reads its own part of the columns and ends in a batch norm.

The steps are those of PyG's (`pna`), whose first Linear reads the target before the source.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field

from embertide.models.after import fold_batch_norm
from embertide.models.builder import ProgramBuilder
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
from embertide.models.layer import Layer
from embertide.models.registry import convolution
from embertide.models.weights import Scope

_BATCH_NORM_EPS = 1e-5
"""PNAConvTower makes its batch norm with torch's default."""


def _moments(m: Any) -> bool:
    """Aggregators of PNAConv that no step has."""
    return any(one.startswith("moment") for one in m.towers[0].aggregators)


@convolution(
    "dgl",
    module=KnownModule(
        read={
            "aggregators": lambda m: m.towers[0].aggregators,
            "scalers": lambda m: m.towers[0].scalers,
            "delta": lambda m: m.towers[0].delta,
            "bias": lambda _m: True,
        },
        bias="",
        x="node_feat",
        features="edge_feat",
        projection="edge_feat_size",
        by_messages=_moments,
    ),
)
class DglPna(Layer):
    """Several aggregators at once, each scaled by functions of the degree.

    Its batch norms, the mixing layer and the residual are its own.
    """

    marks = ("towers.0.M.weight",)
    module = "dgl.nn.PNAConv"
    conv: Literal["pna"] = Field(description="principal neighbourhood aggregation")
    aggregators: tuple[Literal["mean", "max", "min", "std", "var", "sum"], ...] = Field(
        strict=False,
        min_length=1,
        description="as the module was given them, in order; `moment3` to `moment5` have no step",
    )
    scalers: tuple[Literal["identity", "amplification", "attenuation"], ...] = Field(
        strict=False, min_length=1, description="as the module was given them, in order"
    )
    delta: float = Field(gt=0, description="mean of log(degree + 1) in training, as it was given")
    residual: bool = Field(
        default=True, description="adds the layer's input, where the widths are the same"
    )
    bias: Literal[True] = Field(default=True, description="all its Linears have one")

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """PNAConv; the weights tell the towers."""
        towers = range(count_named(s, "towers.{}.M.weight"))
        before = [_linear(s, f"towers.{tower}.M", "tower in", "both ends") for tower in towers]
        after = [_linear(s, f"towers.{tower}.U", "tower out", "parts in") for tower in towers]
        norms = [_batch_norm(s, f"towers.{tower}.batchnorm") for tower in towers]
        s.bind("out", "tower out")
        weight = s.take("mixing_layer.0.weight", "mixed", "mixed")
        bias = s.take("mixing_layer.0.bias", "mixed")
        found = [(one, two) for one, two in zip(before, after, strict=True) if one and two]
        if len(found) < len(towers) or any(norm is None for norm in norms):
            return x.source
        width, parts = s.size("tower in"), 1 + len(self.aggregators) * len(self.scalers)
        s.agree("in", width * len(towers))
        s.agree("both ends", 2 * width)
        s.agree("parts in", parts * width)
        s.agree("parts", parts)
        s.agree("mixed", s.size("tower out") * len(towers))
        if s.weights.differences:
            return x.source
        turned = [
            (torch.cat([w[:, width:], w[:, :width]], dim=1), shift) for (w, shift), _ in found
        ]
        neighbours = _aggregated(b, s, self, x.source, turned)
        own = [pair for _, pair in found]
        h = of_node(b, s, x.source, own, divided=True)
        for at, scaler in enumerate(self.scalers):
            weight_of = of_scaler(s, own, at, len(self.aggregators))
            part = b.linear(neighbours, weight_of, b.widths[h])
            h = b.combine(h, scaled(b, part, scaler, mean=0.0, mean_log=self.delta))
        scale, shift = (torch.cat(both) for both in zip(*filter(None, norms), strict=True))
        h = b.affine(
            b.size_norm(h), s.put(s.name("norm.scale"), scale), s.put(s.name("norm.shift"), shift)
        )
        out = b.activation(b.linear(h, weight, s.size("mixed"), bias), "leaky_relu")
        return (
            b.combine(x.source, out)
            if self.residual and b.widths[x.source] == b.widths[out]
            else out
        )


def _aggregated(b: ProgramBuilder, s: Scope, o: DglPna, x: str, layer: list[LinearPair]) -> str:
    """[N, aggregators * towers * width] of the messages to each node."""
    source, target = of_ends(b, s, x, layer, divided=True)
    found = [
        b.message(source, ("out = same(s)",), b.widths[source], reduce="std")
        if one == "std"
        else add_target(b, source, target, one)
        for one in o.aggregators
    ]
    return b.concat(tuple(found)) if len(found) > 1 else found[0]


def _linear(s: Scope, name: str, rows: str, columns: str) -> LinearPair | None:
    weight, bias = s.raw(f"{name}.weight", rows, columns), s.raw(f"{name}.bias", rows)
    return None if weight is None or bias is None else (weight, bias)


def _batch_norm(s: Scope, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Scale and shift of a tower's batch norm."""
    names = ("running_mean", "running_var", "weight", "bias")
    mean, var, weight, bias = (s.raw(f"{name}.{one}", "tower out") for one in names)
    s.pass_over(f"{name}.num_batches_tracked")
    if mean is None or var is None or weight is None or bias is None:
        return None
    return fold_batch_norm(mean, var, _BATCH_NORM_EPS, weight, bias)
