"""DGL's convolutions as steps, each as ``dgl.nn.pytorch.conv`` computes it.

DGL takes the graph as it is (no self-loops are added), counts degrees without edge weights, and
gives zeros to nodes without in-edges (``allow_zero_in_degree=True`` is assumed).
"""

from __future__ import annotations

from collections.abc import Callable

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.ends import Ends
from embertide.models.convs.gin import gin
from embertide.models.convs.propagate import Hop
from embertide.models.options.dgl import (
    DglDotGat,
    DglGat,
    DglGatv2,
    DglGcn,
    DglGin,
    DglHeads,
    DglPropagate,
    DglSage,
)
from embertide.models.weights import Scope
from embertide.steps import Norm

_NORMS: dict[str, Norm] = {
    "both": "both",
    "in_degree": "sym_in",
    "right": "in",
    "left": "out",
    "none": "none",
}


def gcn(b: ProgramBuilder, s: Scope, o: DglGcn, x: Ends) -> str:
    """GraphConv: its weight is stored [in, out]; the bias comes after both normalisations.

    It reads the sources alone.
    """
    weight = s.take("weight", "in", "out", turned=True) if o.weight else None
    bias = s.take("bias", "out") if o.bias else None
    if weight is None:
        s.bind("out", "in")
        s.bind("in", "out")
    return _gcn_steps(b, s, o, x.source, weight, bias)


def _gcn_steps(
    b: ProgramBuilder, s: Scope, o: DglGcn, x: str, weight: str | None, bias: str | None
) -> str:
    norm, weighted = _NORMS[o.norm], o.uses_edge_weight
    if o.edge_weight_norm is not None:
        norm = "both_weighted" if o.edge_weight_norm == "both" else "in_weighted"
    if weight is not None and s.size("out") > s.size("in"):
        total = b.aggregate(x, norm=norm, edge_weight=weighted)
        return b.linear(total, weight, s.size("out"), bias)
    h = x if weight is None else b.linear(x, weight, s.size("out"))
    total = b.aggregate(h, norm=norm, edge_weight=weighted)
    return total if bias is None else b.affine(total, None, bias)


def sage(b: ProgramBuilder, s: Scope, o: DglSage, x: Ends) -> str:
    """SAGEConv: ``gcn`` has no fc_self but a bias of its own, the others have fc_self."""
    kind = o.aggregator_type or _sage_kind(s)
    neighbours = s.take("fc_neigh.weight", "out", "in")
    own = None if kind == "gcn" else s.take("fc_self.weight", "out", x.own)
    # Until DGL 1.0 the bias stood beside fc_self, not in it.
    places = ("bias",) if kind == "gcn" else ("fc_self.bias", "bias")
    bias = s.take_any(places, "out") if o.bias else None
    if kind == "pool":
        total = _sage_pool(b, s, o, x.source, neighbours)
    elif s.size("out") <= s.size("in"):
        first = b.linear(x.source, neighbours, s.size("out"))
        total = _sage_total(b, o, kind, first, lambda: _sage_target(b, s, x, first, neighbours))
    else:
        total = _sage_total(b, o, kind, x.source, lambda: x.target)
        total = b.linear(total, neighbours, s.size("out"))
    if own is not None:
        return b.combine(b.linear(x.target, own, s.size("out"), bias), total)
    return total if bias is None else b.affine(total, None, bias)


def _sage_target(b: ProgramBuilder, s: Scope, x: Ends, first: str, neighbours: str) -> str:
    """The node itself through fc_neigh, as its neighbours are."""
    return first if x.within else b.linear(x.target, neighbours, s.size("out"))


def _sage_kind(s: Scope) -> str:
    if s.has("fc_pool.weight"):
        return "pool"
    return "mean" if s.has("fc_self.weight") else "gcn"


def _sage_pool(b: ProgramBuilder, s: Scope, o: DglSage, x: str, neighbours: str) -> str:
    weight = s.take("fc_pool.weight", "in", "in")
    bias = s.take("fc_pool.bias", "in")
    pooled = b.activation(b.linear(x, weight, s.size("in"), bias), "relu")
    total = b.aggregate(pooled, reduce="max", edge_weight=o.uses_edge_weight)
    return b.linear(total, neighbours, s.size("out"))


def _sage_total(b: ProgramBuilder, o: DglSage, kind: str, h: str, own: Callable[[], str]) -> str:
    if kind == "mean":
        return b.aggregate(h, norm="in", edge_weight=o.uses_edge_weight)
    total = b.aggregate(h, edge_weight=o.uses_edge_weight)
    return b.divide_by_degree(b.combine(own(), total), add=1)


def _bind_heads(s: Scope, o: DglHeads) -> None:
    if o.num_heads is not None:
        s.agree("heads", o.num_heads)


def gat(b: ProgramBuilder, s: Scope, o: DglGat, x: Ends) -> str:
    """GATConv: attn_l scores the source, attn_r the target, both on the shared projection."""
    _bind_heads(s, o)
    left = s.take("attn_l", 1, "heads", "width", heads=True)
    right = s.take("attn_r", 1, "heads", "width", heads=True)
    s.bind("out", "heads", "width")
    h, other = _both_ends(b, s, x)
    heads = s.size("heads")
    out = b.attend(
        h,
        b.head_dot(h, left, heads),
        b.head_dot(other, right, heads),
        heads,
        negative_slope=o.negative_slope,
        edge_weight=o.uses_edge_weight,
    )
    projected = o.residual and s.size(x.own) != s.size("out")
    # A projected residual carries the bias; until DGL 1.0 the layer had it in any case.
    inner = projected and o.bias and not s.has("bias")
    bias = s.take("bias", "out") if o.bias and not inner else None
    if o.residual:
        return _residual(
            b, s, x, out, projected=projected, inner="res_fc.bias" if inner else None, bias=bias
        )
    return out if bias is None else b.affine(out, None, bias)


def _both_ends(b: ProgramBuilder, s: Scope, x: Ends) -> tuple[str, str]:
    """Both ends projected: by ``fc``, or by one each where the module was made for a pair."""
    if s.has("fc_src.weight"):
        names, size = ("fc_src.weight", "fc_dst.weight"), x.own
    else:
        names, size = ("fc.weight", "fc.weight"), "in"
    h = b.linear(x.source, s.take(names[0], "out", "in"), s.size("out"))
    if x.within and names[0] == names[1]:
        return h, h
    return h, b.linear(x.target, s.take(names[1], "out", size), s.size("out"))


def _residual(
    b: ProgramBuilder,
    s: Scope,
    x: Ends,
    out: str,
    *,
    projected: bool,
    inner: str | None = None,
    bias: str | None = None,
) -> str:
    """Add x, projected where its width differs; the bias goes with the projection.

    ``inner`` names a bias that is stored with the projection, ``bias`` one that has been taken.
    """
    if not projected:
        total = b.combine(x.target, out)
        return total if bias is None else b.affine(total, None, bias)
    weight = s.take("res_fc.weight", "out", x.own)
    taken = bias if inner is None else s.take(inner, "out")
    return b.combine(b.linear(x.target, weight, s.size("out"), taken), out)


def gatv2(b: ProgramBuilder, s: Scope, o: DglGatv2, x: Ends) -> str:
    """GATv2Conv: fc_src gives keys and values, fc_dst queries; there is no bias outside them."""
    _bind_heads(s, o)
    vector = s.take("attn", 1, "heads", "width", heads=True)
    s.bind("out", "heads", "width")
    name = s.shared("fc_src", "fc_dst") if o.share_weights else "fc_src"
    key = _linear(b, s, x.source, name, o.bias)
    if o.share_weights:
        query = key if x.within else _linear(b, s, x.target, name, o.bias)
    else:
        query = _linear(b, s, x.target, "fc_dst", o.bias, x.own)
    out = b.pair_attend(
        key,
        query,
        s.size("heads"),
        kind="gatv2",
        vector=vector,
        negative_slope=o.negative_slope,
    )
    if not o.residual:
        return out
    projected = s.size(x.own) != s.size("out")
    inner = "res_fc.bias" if projected and o.bias else None
    return _residual(b, s, x, out, projected=projected, inner=inner)


def _linear(b: ProgramBuilder, s: Scope, x: str, name: str, bias: bool, columns: str = "in") -> str:
    weight = s.take(f"{name}.weight", "out", columns)
    return b.linear(x, weight, s.size("out"), s.take(f"{name}.bias", "out") if bias else None)


def dotgat(b: ProgramBuilder, s: Scope, o: DglDotGat, x: Ends) -> str:
    """DotGatConv: keys, queries and values are one projection, scores scaled by its width."""
    _bind_heads(s, o)
    h, query = _both_ends(b, s, x)
    out, heads = s.size("out"), o.num_heads or 1
    if out % heads:
        s.weights.differ(s.name("fc.weight"), f"rows for {heads} heads", f"{out} rows")
    return b.pair_attend(h, query, heads, kind="dot", scale=max(1, out // heads) ** -0.5)


def dgl_propagate(b: ProgramBuilder, _s: Scope, o: DglPropagate, x: str) -> str:
    """APPNPConv; with ``norm: in_degree`` SGConv before its Linear."""
    return Hop(norm=_NORMS[o.norm]).times(b, x, o.k, alpha=o.alpha)


def dgl_gin(b: ProgramBuilder, s: Scope, o: DglGin, x: Ends) -> str:
    """GINConv; its function is stored under ``apply_func``."""
    return gin(b, s, o, x, o.aggregator_type, "apply_func")
