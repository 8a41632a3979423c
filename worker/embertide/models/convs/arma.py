"""Auto-regressive moving average filters (Bianchi et al., 2021, eq. 9).

    h_0 = x,  h_t = act(A h_(t-1) W_t + x V_t + b_t),  out = the mean of h_T over K stacks

x [N, in], out [N, out]. No self-loops are added.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from embertide.models.after import activation
from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.hops import gcn_hop
from embertide.models.convs.shared.live_activations import activation_name, activation_of
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer
from embertide.models.parts import Activation, ActivationOptions
from embertide.models.registry import convolution
from embertide.models.weights import Scope


@convolution(
    "pyg",
    module=KnownModule(
        read={"act": lambda m: activation_of(m.act)},
        weight="edge_weight",
        by_messages=lambda m: m.act is not None and activation_name(m.act) is None,
    ),
)
class PygArma(Layer):
    """Stacks of recursive filters, averaged; no self-loops are added."""

    weighted = True
    marks = ("init_weight",)
    module = "torch_geometric.nn.ARMAConv"
    conv: Literal["arma"] = Field(description="auto-regressive moving average filters")
    num_layers: int | None = Field(
        default=None,
        ge=1,
        description="how often neighbours are summed; the weights show it, but not those of"
        " `shared_weights` (1)",
    )
    shared_weights: bool = Field(default=False, description="all its layers have one weight")
    act: Activation | None = Field(
        default=ActivationOptions(kind="relu"),
        description="an activation after each of its layers",
    )

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """ARMAConv (Bianchi et al., eq. 9): the stacks stand side by side until their mean."""
        _put_stacks(s, self)
        own, stacks = s.size("own"), s.size("stacks")
        width, h = stacks * s.size("out"), x.source
        hop = gcn_hop(edge_weight=self.uses_edge_weight)
        for t in range((self.num_layers or 1) if self.shared_weights else own):
            place = 0 if self.shared_weights else t
            before = "init_weight" if t == 0 else f"weight.{0 if self.shared_weights else t - 1}"
            summed = hop.once(b, b.linear(h, s.name(before), width))
            shift = s.name(f"bias.{place}") if self.bias else None
            h = b.combine(b.linear(x.source, s.name(f"root_weight.{place}"), width, shift), summed)
            h = h if self.act is None else activation(b, s, self.act, h)
        return b.head_mean(h, stacks)


def _put_stacks(s: Scope, o: PygArma) -> None:
    """Add the parameters of each layer, those of its stacks side by side."""
    if o.shared_weights:
        s.agree("own", 1)
    elif o.num_layers is not None:
        s.agree("own", o.num_layers)
    roots = s.raw("root_weight", "own", "stacks", "in", "out")
    start = s.raw("init_weight", "stacks", "in", "out")
    inner = s.raw("weight", max(1, s.size("own") - 1), "stacks", "out", "out")
    bias = s.raw("bias", "own", "stacks", 1, "out") if o.bias else None
    if start is not None:
        s.put(s.name("init_weight"), _side_by_side(start))
    for t, own in enumerate([] if roots is None else roots):
        s.put(s.name(f"root_weight.{t}"), _side_by_side(own))
    for t, own in enumerate([] if bias is None else bias):
        s.put(s.name(f"bias.{t}"), own.flatten())
    # With one layer the module holds a weight that it does not use.
    several = s.size("own") > 1 or (o.num_layers or 1) > 1
    for t, own in enumerate(inner if several and inner is not None else []):
        s.put(s.name(f"weight.{t}"), torch.block_diag(*own.transpose(1, 2)))


def _side_by_side(weights: torch.Tensor) -> torch.Tensor:
    """[K, in, out] one weight for each stack, as that of one Linear: [K*out, in]."""
    return weights.transpose(1, 2).reshape(-1, weights.shape[1])
