"""DGL's graph filters as steps, each as ``dgl.nn.pytorch.conv`` computes it.

All but APPNPConv divide by the roots of in-degrees at both ends; with edge weights all divide by
weighted degrees (EdgeWeightNorm), of sources and targets. None adds self-loops.
"""

from __future__ import annotations

import math
from functools import partial

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.cosine import cosine_attention
from embertide.models.convs.gcn2 import gcn2
from embertide.models.convs.polynomial import chebyshev, laplacian, powers
from embertide.models.convs.propagate import Hop
from embertide.models.options.dgl_filters import (
    DglAgnn,
    DglAppnp,
    DglCheb,
    DglGcn2,
    DglSg,
    DglTag,
)
from embertide.models.options.layer import Layer
from embertide.models.weights import Scope
from embertide.steps import Norm


def _hop(o: Layer, norm: Norm = "sym_in") -> Hop:
    weighted = o.uses_edge_weight
    return Hop(norm="both_weighted" if weighted else norm, edge_weight=weighted)


def appnp(b: ProgramBuilder, _s: Scope, o: DglAppnp, x: str) -> str:
    """APPNPConv: degrees as GraphConv's ``both``."""
    return _hop(o, "both").times(b, x, o.k, alpha=o.alpha)


def sg(b: ProgramBuilder, s: Scope, o: DglSg, x: str) -> str:
    """SGConv: the k sums and the Linear, which stands where its rows are narrower."""
    weight = s.take("fc.weight", "out", "in")
    bias = s.take("fc.bias", "out") if o.bias else None
    if s.size("out") >= s.size("in"):
        return b.linear(_hop(o).times(b, x, o.k), weight, s.size("out"), bias)
    total = _hop(o).times(b, b.linear(x, weight, s.size("out")), o.k)
    return total if bias is None else b.affine(total, None, bias)


def tag(b: ProgramBuilder, s: Scope, o: DglTag, x: str) -> str:
    """TAGConv: its Linear reads all powers side by side, so it is one for each of them."""
    weights = _parts(s, "lin.weight", o.k + 1)
    bias = s.take("lin.bias", "out") if o.bias else None
    return powers(b, x, weights, s.size("out"), bias, partial(_hop(o).once, b))


def cheb(b: ProgramBuilder, s: Scope, o: DglCheb, x: str) -> str:
    """ChebConv: its Linear reads all polynomials side by side, so it is one for each of them."""
    weights = _parts(s, "linear.weight", o.k, alternating=True)
    bias = s.take("linear.bias", "out") if o.bias else None
    apply = laplacian(b, o.lambda_max, partial(_hop(o).once, b))
    return chebyshev(b, x, weights, s.size("out"), bias, apply)


def _parts(s: Scope, short: str, count: int, *, alternating: bool = False) -> list[str]:
    """The weight [out, count*in] of a Linear over ``count`` tensors, cut into one for each.

    Args:
        alternating: every second one with the opposite sign.
    """
    columns = count * s.size("in")
    whole = s.raw(short, "out", columns or "columns")
    names = [s.name(f"{short}.{part}") for part in range(count)]
    if whole is None:
        return names
    if whole.shape[1] % count:
        expected = f"columns for {count} tensors  ({s.label})"
        s.weights.differ(s.name(short), expected, f"{whole.shape[1]} columns")
        return names
    s.agree("in", whole.shape[1] // count)
    for part, (name, weight) in enumerate(zip(names, whole.chunk(count, dim=1), strict=True)):
        s.put(name, -weight if alternating and part % 2 else weight)
    return names


def gcn2_conv(b: ProgramBuilder, s: Scope, o: DglGcn2, x: str) -> str:
    """GCN2Conv."""
    total = _hop(o).once(b, x)
    beta = math.log(o.lambda_ / o.layer + 1.0)
    out = gcn2(b, s, total, b.output_of(o.feat_0), alpha=o.alpha, beta=beta)
    return b.affine(out, None, s.take("bias", "in")) if o.bias else out


def agnn(b: ProgramBuilder, s: Scope, _o: DglAgnn, x: str) -> str:
    """AGNNConv: the graph's own self-loops only."""
    return cosine_attention(b, s, x, loops="keep")
