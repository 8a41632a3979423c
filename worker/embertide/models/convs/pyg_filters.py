"""PyG's graph filters as steps, each as ``torch_geometric.nn.conv`` computes it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from embertide.models.after import activation
from embertide.models.builder import ProgramBuilder
from embertide.models.convs.degrees import scale_by_degree
from embertide.models.convs.gcn2 import gcn2
from embertide.models.convs.polynomial import chebyshev, laplacian, powers
from embertide.models.convs.propagate import Hop
from embertide.models.options.pyg_filters import (
    PygAppnp,
    PygArma,
    PygCheb,
    PygFa,
    PygGcn2,
    PygLg,
    PygLightGcn,
    PygPowers,
    PygSg,
    PygSsg,
    PygTag,
)
from embertide.models.weights import Scope
from embertide.steps import Norm


def gcn_hop(
    *,
    normalize: bool = True,
    loops: bool = False,
    loop_weight: float = 1.0,
    edge_weight: bool,
) -> Hop:
    """A sum over in-edges with gcn_norm's degrees; ``loops``: one self-loop for every node."""
    return Hop(
        norm="sym_in_weighted" if normalize else "none",
        loops="single" if loops else "keep",
        loop_weight=loop_weight,
        edge_weight=edge_weight,
    )


def appnp(b: ProgramBuilder, _s: Scope, o: PygAppnp, x: str) -> str:
    """APPNP; it adds self-loops only where it normalises."""
    loops = o.normalize and o.add_self_loops
    hop = gcn_hop(normalize=o.normalize, loops=loops, edge_weight=o.uses_edge_weight)
    return hop.times(b, x, o.K, alpha=o.alpha)


def sg(b: ProgramBuilder, s: Scope, o: PygSg, x: str) -> str:
    """SGConv: the K sums, and the Linear where it makes their rows narrower or else behind them."""
    return _filtered(b, s, o, x, None)


def ssg(b: ProgramBuilder, s: Scope, o: PygSsg, x: str) -> str:
    """SSGConv: alpha * x + (1 - alpha) / K * (A x + ... + A^K x)."""
    return _filtered(b, s, o, x, (o.alpha, *[(1.0 - o.alpha) / o.K] * o.K))


def _filtered(
    b: ProgramBuilder, s: Scope, o: PygPowers, x: str, hops: tuple[float, ...] | None
) -> str:
    """A filter without weights and its Linear; the two commute."""
    hop = gcn_hop(loops=o.add_self_loops, edge_weight=o.uses_edge_weight)
    weight = s.take("lin.weight", "out", "in")
    bias = s.take("lin.bias", "out") if o.bias else None
    if s.size("out") >= s.size("in"):
        return b.linear(hop.times(b, x, o.K, hops=hops), weight, s.size("out"), bias)
    total = hop.times(b, b.linear(x, weight, s.size("out")), o.K, hops=hops)
    return total if bias is None else b.affine(total, None, bias)


def lg(b: ProgramBuilder, _s: Scope, o: PygLg, x: str) -> str:
    """LGConv."""
    return gcn_hop(normalize=o.normalize, edge_weight=o.uses_edge_weight).once(b, x)


def lightgcn(b: ProgramBuilder, s: Scope, o: PygLightGcn, x: str) -> str:
    """LightGCN (He et al., eq. 4); ``alpha`` has one factor for the table and each layer."""
    if s.has("embedding.weight"):
        s.raw("embedding.weight", "nodes", "in")
    alpha = s.raw("alpha", "layers")
    if alpha is None:
        return x
    factors = tuple(alpha.double().tolist())
    hop = gcn_hop(normalize=o.normalize, edge_weight=o.uses_edge_weight)
    return hop.times(b, x, len(factors) - 1, hops=factors)


def tag(b: ProgramBuilder, s: Scope, o: PygTag, x: str) -> str:
    """TAGConv: the Linears ``lins`` have no bias of their own."""
    count = o.K + 1 if o.K is not None else _linears(s)
    weights = [s.take(f"lins.{power}.weight", "out", "in") for power in range(count)]
    bias = s.take("bias", "out") if o.bias else None
    hop = gcn_hop(normalize=o.normalize, edge_weight=o.uses_edge_weight)
    return powers(b, x, weights, s.size("out"), bias, partial(hop.once, b))


def cheb(b: ProgramBuilder, s: Scope, o: PygCheb, x: str) -> str:
    """ChebConv: sums without self-loops, by degrees of the sources at both ends (``sym``)."""
    norm: Norm = "sym_out_weighted" if o.normalization == "sym" else "out_weighted"
    weights = []
    for power in range(o.K or _linears(s)):
        name = s.take(f"lins.{power}.weight", "out", "in")
        if power % 2 and name in s.weights.params:
            s.put(name, -s.weights.params[name])
        weights.append(name)
    bias = s.take("bias", "out") if o.bias else None
    hop = Hop(norm=norm, loops="none", edge_weight=o.uses_edge_weight)
    apply = laplacian(b, o.lambda_max, partial(hop.once, b))
    return chebyshev(b, x, weights, s.size("out"), bias, apply)


def _linears(s: Scope) -> int:
    """How many Linears ``lins`` holds; at least one, so that what is missing can be named."""
    count = 1
    while s.has(f"lins.{count}.weight"):
        count += 1
    return count


def gcn2_conv(b: ProgramBuilder, s: Scope, o: PygGcn2, x: str) -> str:
    """GCN2Conv."""
    beta = 1.0
    if o.theta is not None and o.layer is not None:
        beta = math.log(o.theta / o.layer + 1.0)
    loops = o.normalize and o.add_self_loops
    hop = gcn_hop(normalize=o.normalize, loops=loops, edge_weight=o.uses_edge_weight)
    return gcn2(b, s, hop.once(b, x), b.output_of(o.x_0), alpha=o.alpha, beta=beta)


def fa(b: ProgramBuilder, s: Scope, o: PygFa, x: str) -> str:
    """FAConv (Bo et al., eq. 6): roots of degrees stand before and behind the sum of messages.

    A message needs one number of each end, its score, beside the source's row.
    """
    columns = s.size("in") or "in"
    scores = [s.take(f"att_{end}.weight", 1, columns) for end in ("l", "r")]
    source, target = (b.head_dot(x, name, 1) for name in scores)
    view: dict[str, Any] = {"loops": "single" if o.normalize and o.add_self_loops else "keep"}
    rows = scale_by_degree(b, x, "inverse_root", **view) if o.normalize else x
    width = b.widths[x] or s.size("in")
    lines = (
        f"a = narrow(s, 1, 0, {width})",
        f"b = narrow(s, 1, {width}, 1)",
        "c = add(b, t)",
        "d = tanh(c)",
        "e = mul(d, w)",
        "out = mul(a, e)",
    )
    weighted = o.uses_edge_weight
    joined = b.concat((rows, source))
    total = b.message(joined, lines, width, target=target, edge_weight=weighted, **view)
    if o.normalize:
        total = scale_by_degree(b, total, "inverse_root", **view)
    return b.combine(b.output_of(o.x_0), total, alpha=o.eps) if o.eps else total


def arma(b: ProgramBuilder, s: Scope, o: PygArma, x: str) -> str:
    """ARMAConv (Bianchi et al., eq. 9): the stacks stand side by side until their mean."""
    _put_stacks(s, o)
    own, stacks = s.size("own"), s.size("stacks")
    width, h = stacks * s.size("out"), x
    hop = gcn_hop(edge_weight=o.uses_edge_weight)
    for t in range((o.num_layers or 1) if o.shared_weights else own):
        place = 0 if o.shared_weights else t
        before = "init_weight" if t == 0 else f"weight.{0 if o.shared_weights else t - 1}"
        summed = hop.once(b, b.linear(h, s.name(before), width))
        shift = s.name(f"bias.{place}") if o.bias else None
        h = b.combine(b.linear(x, s.name(f"root_weight.{place}"), width, shift), summed)
        h = h if o.act is None else activation(b, s, o.act, h)
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
