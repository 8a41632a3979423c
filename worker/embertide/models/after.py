"""What may follow a convolution: norms in eval mode, activations, links between layers."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from embertide.models.builder import ProgramBuilder
from embertide.models.graph_norms import norm_over_nodes
from embertide.models.layer import Layer
from embertide.models.node_types import prefix_of
from embertide.models.norm_options import GraphNormOptions, LayerNormOptions
from embertide.models.parts import ActivationOptions, NormOptions, SkipOptions
from embertide.models.prefixes import Kind
from embertide.models.weights import Scope

Norms = Mapping[Kind, str]
"""The kinds of norms that follow a layer -> the full prefix of its parameters."""


def parts_after(
    b: ProgramBuilder, s: Scope, layer: Layer, h: str, norms: Norms | None = None, x: str = ""
) -> str:
    """All that a layer says to follow its convolution's result ``h``.

    Args:
        norms: the full prefix of each kind of norm that it has.
        x: the layer's input.
    """
    norms = norms or {}
    for part in layer.order or layer.parts_given():
        if part == "average":
            h = b.head_mean(h, s.size("heads"))
        elif part == "batch_norm" and layer.batch_norm is not None:
            h = batch_norm(b, s.at(norms[part]), layer.batch_norm, h)
        elif part == "layer_norm" and layer.layer_norm is not None:
            h = layer_norm(b, s.at(norms[part]), layer.layer_norm, h)
        elif part == "graph_norm" and layer.graph_norm is not None:
            h = graph_norm(b, s.at(norms[part]), layer.graph_norm, h)
        elif part == "activation" and layer.activation is not None:
            h = activation(b, s, layer.activation, h)
        elif part == "skip" and layer.skip is not None:
            h = skip(b, s, layer.skip, h, x)
    return h


def activation(b: ProgramBuilder, s: Scope, o: ActivationOptions, h: str) -> str:
    """An element-wise function; prelu's slopes are one number or one for each column."""
    weight = None
    if o.prefix is not None:
        slopes = Scope(s.weights, _prefix(b, s, o.prefix), s.label, {})
        count = slopes.weights.found.get(slopes.name("weight"))
        one = count is not None and count.shape == (1,)
        weight = slopes.take("weight", 1 if one else b.widths[h] or "columns")
    return b.activation(h, o.kind, o.slope, weight)


def fold_batch_norm(
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and shift (float64) of a batch norm in eval mode: (x - mean) / sqrt(var + eps)."""
    scale = (var.double() + eps).rsqrt()
    if weight is not None:
        scale = scale * weight.double()
    shift = -mean.double() * scale
    return scale, shift if bias is None else shift + bias.double()


def batch_norm(b: ProgramBuilder, s: Scope, o: NormOptions, h: str) -> str:
    """One scale and shift per column, from the running statistics."""
    columns = b.widths[h] or "columns"
    mean, var = s.raw("running_mean", columns), s.raw("running_var", columns)
    weight = s.raw("weight", columns) if o.affine else None
    bias = s.raw("bias", columns) if o.affine else None
    s.pass_over("num_batches_tracked")
    names = s.name("scale"), s.name("shift")
    if mean is not None and var is not None:
        for name, tensor in zip(
            names, fold_batch_norm(mean, var, o.eps, weight, bias), strict=True
        ):
            s.put(name, tensor)
    return b.affine(h, *names)


def layer_norm(b: ProgramBuilder, s: Scope, o: NormOptions, h: str) -> str:
    """Each row on its own, as torch.nn.LayerNorm does, or as PyG's with mode="graph"."""
    columns = b.widths[h] or "columns"
    scale = s.take("weight", columns) if o.affine else None
    shift = s.take("bias", columns) if o.affine else None
    if isinstance(o, LayerNormOptions) and o.mode == "graph":
        return b.graph_norm(h, "all", scale=scale, shift=shift, eps=o.eps)
    return b.layer_norm(h, scale, shift, o.eps)


def graph_norm(b: ProgramBuilder, s: Scope, o: GraphNormOptions, h: str) -> str:
    """By statistics over all nodes, or by those that an instance norm has stored."""
    if o.track_running_stats:
        return batch_norm(b, s, NormOptions(eps=o.eps, affine=o.affine), h)
    return norm_over_nodes(b, s, o, h)


def skip(b: ProgramBuilder, s: Scope, o: SkipOptions, h: str, x: str) -> str:
    """Add an earlier tensor, projected when ``linear`` says so; ``x`` is the layer's input."""
    source = x if o.source == "layer" else b.output_of(o.source)
    if o.linear is not None:
        inner = Scope(s.weights, _prefix(b, s, o.linear), s.label, {})
        weight = inner.take("weight", b.widths[h] or "out", b.widths[source] or "in")
        bias = inner.take("bias", b.widths[h] or "out") if inner.has("bias") else None
        source = b.linear(source, weight, b.widths[h], bias)
    elif b.widths[source] != b.widths[h] and b.widths[h] and b.widths[source]:
        expected = f"{b.widths[h]} columns, or skip with linear  ({s.label})"
        s.weights.differ("(skip)", expected, f"{b.widths[source]} columns")
    return b.combine(source, h)


def _prefix(b: ProgramBuilder, s: Scope, prefix: str) -> str:
    """Where the module of the nodes that are being written is stored."""
    return prefix_of(prefix, b.node_type, list(s.weights.found))
