"""PyG's convolutions as steps, each as ``torch_geometric.nn.conv`` computes it.

Unlike DGL, PyG's GCN and attention make sure of one self-loop per node, GCN's degrees are sums
of edge weights over in-edges at both ends, and the bias follows the residual.
"""

from __future__ import annotations

import torch

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.aggregation import LINEAR, aggregate
from embertide.models.convs.cosine import cosine_attention
from embertide.models.convs.degrees import scale_by_degree
from embertide.models.convs.edge_features import (
    attend_dots,
    attend_edges,
    attend_pairs,
    edge_projection,
)
from embertide.models.convs.ends import Ends
from embertide.models.convs.gin import gin
from embertide.models.convs.propagate import Hop
from embertide.models.convs.pyg_filters import gcn_hop
from embertide.models.options.pyg import (
    PygAgnn,
    PygGat,
    PygGatv2,
    PygGcn,
    PygGin,
    PygGraph,
    PygHeads,
    PygLe,
    PygPropagate,
    PygSage,
    PygTransformer,
)
from embertide.models.weights import Scope
from embertide.steps import Loops

_GATE = (
    "a = sub(x0, x1)",
    "b = cat([x0, x1, a], 1)",
    "c = linear(b, p0)",
    "d = sigmoid(c)",
    "e = mul(d, a)",
    "out = sub(x0, e)",
)
"""TransformerConv's beta: beta * x1 + (1 - beta) * x0 of what neighbours and the node give."""


def gcn(b: ProgramBuilder, s: Scope, o: PygGcn, x: str) -> str:
    """GCNConv; a new self-loop of an ``improved`` one weighs 2 in a weighted graph."""
    weight = s.take("lin.weight", "out", "in")
    bias = s.take("bias", "out") if o.bias else None
    hop = _hop(o, loop_weight=2.0 if o.improved else 1.0)
    if s.size("out") > s.size("in"):
        return b.linear(hop.once(b, x), weight, s.size("out"), bias)
    total = hop.once(b, b.linear(x, weight, s.size("out")))
    return total if bias is None else b.affine(total, None, bias)


def pyg_propagate(b: ProgramBuilder, _s: Scope, o: PygPropagate, x: str) -> str:
    """APPNP; with ``alpha: 0`` SGConv before its Linear."""
    return _hop(o).times(b, x, o.K, alpha=o.alpha)


def _hop(o: PygGcn | PygPropagate, *, loop_weight: float = 1.0) -> Hop:
    """The sum over in-edges, with gcn_norm's self-loops and degrees unless told otherwise."""
    return gcn_hop(
        normalize=o.normalize,
        loops=o.normalize if o.add_self_loops is None else o.add_self_loops,
        loop_weight=loop_weight,
        edge_weight=o.uses_edge_weight,
    )


def _loops(add: bool) -> Loops:
    return "single" if add else "keep"


def sage(b: ProgramBuilder, s: Scope, o: PygSage, x: Ends) -> str:
    """SAGEConv: lin_l holds the bias, which every node gets, with neighbours or without."""
    aggrs = o.aggrs or (o.aggr,)
    weights = _parts(s, "lin_l.weight", len(aggrs))
    bias = s.take("lin_l.bias", "out") if o.bias else None
    out, rooted = s.size("out"), o.root_weight and x.target != ""
    if o.project:
        inner, shift = s.take("lin.weight", "in", "in"), s.take("lin.bias", "in")
        h = b.activation(b.linear(x.source, inner, s.size("in"), shift), "relu")
    else:
        h = x.source
    total = ""
    for aggr, weight in zip(aggrs, weights, strict=True):
        if aggr in LINEAR and out <= s.size("in"):
            part = aggregate(b, b.linear(h, weight, out), aggr)
        else:
            # The bias rides on one such product where no product of the node itself can carry it.
            late = None if rooted else bias
            part = b.linear(aggregate(b, h, aggr), weight, out, late)
            bias = bias if rooted else None
        total = b.combine(total, part) if total else part
    if rooted:
        root = s.take("lin_r.weight", "out", x.own)
        total = b.combine(b.linear(x.target, root, out, bias), total)
    elif bias is not None:
        total = b.affine(total, None, bias)
    if o.root_weight and not x.target:
        s.pass_over("lin_r.weight")
    return b.row_normalize(total) if o.normalize else total


def _parts(s: Scope, short: str, count: int) -> list[str]:
    """The weight [out, count * in] of a Linear over ``count`` tensors, one for each of them."""
    if count == 1:
        return [s.take(short, "out", "in")]
    names = [s.name(f"{short}.{at}") for at in range(count)]
    whole = s.raw(short, "out", count * s.size("in") or "columns")
    if whole is None:
        return names
    if whole.shape[1] % count:
        expected = f"columns for {count} tensors  ({s.label})"
        s.weights.differ(s.name(short), expected, f"{whole.shape[1]} columns")
        return names
    s.agree("in", whole.shape[1] // count)
    return [s.put(name, part) for name, part in zip(names, whole.chunk(count, 1), strict=True)]


def graph(b: ProgramBuilder, s: Scope, o: PygGraph, x: Ends) -> str:
    """GraphConv: lin_rel holds the bias, which every node gets, with neighbours or without."""
    weight = s.take("lin_rel.weight", "out", "in")
    bias = s.take("lin_rel.bias", "out") if o.bias else None
    out, weighted = s.size("out"), o.uses_edge_weight
    if o.aggr in LINEAR and out <= s.size("in"):
        total = aggregate(b, b.linear(x.source, weight, out), o.aggr, edge_weight=weighted)
    else:
        total = b.linear(aggregate(b, x.source, o.aggr, edge_weight=weighted), weight, out)
    if not x.target:
        s.pass_over("lin_root.weight")
        return total if bias is None else b.affine(total, None, bias)
    root = s.take("lin_root.weight", "out", x.own)
    return b.combine(b.linear(x.target, root, out, bias), total)


def gat(b: ProgramBuilder, s: Scope, o: PygGat, x: Ends) -> str:
    """GATConv: one projection for both ends, or one for each where it was made for a pair.

    Versions before 2.5 store one shared projection as lin_src (and lin_dst).
    """
    if o.heads is not None:
        s.agree("heads", o.heads)
    source = s.take("att_src", 1, "heads", "width", heads=True)
    target = s.take("att_dst", 1, "heads", "width", heads=True)
    s.bind("columns", "heads", "width")
    heads, columns = s.size("heads"), s.size("columns")
    weight = s.take_any(("lin.weight", "lin_src.weight"), "columns", "in")
    h = b.linear(x.source, weight, columns)
    other = h if x.within else ""
    if s.has("lin_dst.weight"):
        of_target = s.take("lin_dst.weight", "columns", x.own)
        if not (x.within and _equal(s, "lin_src.weight", "lin_dst.weight")):
            other = b.linear(x.target, of_target, columns)
    other = other or b.linear(x.target, weight, columns)
    scores = b.head_dot(h, source, heads), b.head_dot(other, target, heads)
    slope, loops = o.negative_slope, _loops(o.add_self_loops)
    if o.edge_dim is None:
        out = b.attend(h, *scores, heads, negative_slope=slope, loops=loops)
    else:
        moved = edge_projection(s, "lin_edge", o.edge_dim)
        edge = s.take("att_edge", 1, "heads", "width", heads=True)
        out = attend_edges(
            b, s, h, scores, (moved, edge), negative_slope=slope, loops=loops, fill=o.fill_value
        )
    return _finish(b, s, o, x, out)


def _equal(s: Scope, one: str, other: str) -> bool:
    found = s.weights.found
    first, second = found.get(s.name(one)), found.get(s.name(other))
    return first is not None and second is not None and torch.equal(first, second)


def gatv2(b: ProgramBuilder, s: Scope, o: PygGatv2, x: Ends) -> str:
    """GATv2Conv: lin_l gives keys and values, lin_r queries."""
    if o.heads is not None:
        s.agree("heads", o.heads)
    vector = s.take("att", 1, "heads", "width", heads=True)
    s.bind("columns", "heads", "width")
    name = s.shared("lin_l", "lin_r") if o.share_weights else "lin_l"
    key = _projection(b, s, x.source, name, o.bias)
    if o.share_weights:
        query = key if x.within else _projection(b, s, x.target, name, o.bias)
    else:
        query = _projection(b, s, x.target, "lin_r", o.bias, x.own)
    slope, loops, heads = o.negative_slope, _loops(o.add_self_loops), s.size("heads")
    if o.edge_dim is None:
        out = b.pair_attend(
            key, query, heads, kind="gatv2", vector=vector, negative_slope=slope, loops=loops
        )
    else:
        params = edge_projection(s, "lin_edge", o.edge_dim), vector
        out = attend_pairs(
            b, s, key, query, params, negative_slope=slope, loops=loops, fill=o.fill_value
        )
    return _finish(b, s, o, x, out)


def _projection(
    b: ProgramBuilder, s: Scope, x: str, name: str, bias: bool, columns: str = "in"
) -> str:
    weight = s.take(f"{name}.weight", "columns", columns)
    shift = s.take(f"{name}.bias", "columns") if bias else None
    return b.linear(x, weight, s.size("columns"), shift)


def _finish(b: ProgramBuilder, s: Scope, o: PygHeads, x: Ends, out: str) -> str:
    """Join or average the heads, then add the residual (always projected) and the bias."""
    if o.concat:
        s.bind("out", "columns")
    else:
        s.bind("out", "width")
        out = b.head_mean(out, s.size("heads"))
    bias = s.take("bias", "out") if o.bias else None
    if o.residual:
        weight = s.take("res.weight", "out", x.own)
        return b.combine(b.linear(x.target, weight, s.size("out"), bias), out)
    return out if bias is None else b.affine(out, None, bias)


def transformer(b: ProgramBuilder, s: Scope, o: PygTransformer, x: Ends) -> str:
    """TransformerConv: its softmax goes over the graph's own in-edges."""
    key = _projection(b, s, x.source, "lin_key", o.bias)
    query = _projection(b, s, x.target, "lin_query", o.bias, x.own)
    value = _projection(b, s, x.source, "lin_value", o.bias)
    columns = s.size("columns")
    if columns % o.heads:
        s.weights.differ(s.name("lin_key.weight"), f"rows for {o.heads} heads", f"{columns} rows")
    width = columns // o.heads
    scale = max(1, width) ** -0.5
    if o.edge_dim is None:
        h = b.pair_attend(value, query, o.heads, kind="dot", key=key, scale=scale)
    else:
        weight = edge_projection(s, "lin_edge", o.edge_dim)
        h = attend_dots(b, s, (key, value, query), weight, o.heads, scale)
    if not o.concat:
        h = b.head_mean(h, o.heads)
    s.agree("out", columns if o.concat else width)
    weight = s.take("lin_skip.weight", "out", x.own)
    bias = s.take("lin_skip.bias", "out") if o.bias else None
    if not o.root_weight:
        return h
    own = b.linear(x.target, weight, s.size("out"), bias)
    if not o.beta:
        return b.combine(own, h)
    gate = s.take("lin_beta.weight", 1, 3 * s.size("out") or "gate")
    return b.row_wise((h, own), _GATE, (gate,), s.size("out"))


def le(b: ProgramBuilder, s: Scope, o: PygLe, x: Ends) -> str:
    """LEConv: the sum over in-edges of w * (lin1(x_j) - lin2(x_i)), plus lin3(x_i)."""
    out = {"lin1": x.source, "lin2": x.target, "lin3": x.target}
    for name, end in out.items():
        weight = s.take(f"{name}.weight", "out", "in" if name == "lin1" else x.own)
        bias = s.take(f"{name}.bias", "out") if o.bias and name != "lin2" else None
        out[name] = b.linear(end, weight, s.size("out"), bias)
    weighted = o.uses_edge_weight
    total = b.aggregate(out["lin1"], edge_weight=weighted)
    own = scale_by_degree(b, out["lin2"], "degree", edge_weight=weighted)
    return b.combine(out["lin3"], b.combine(total, own, beta=-1.0))


def agnn(b: ProgramBuilder, s: Scope, o: PygAgnn, x: str) -> str:
    """AGNNConv."""
    return cosine_attention(b, s, x, loops=_loops(o.add_self_loops))


def pyg_gin(b: ProgramBuilder, s: Scope, o: PygGin, x: Ends) -> str:
    """GINConv; its function is stored under ``nn``."""
    return gin(b, s, o, x, o.aggr, "nn")
