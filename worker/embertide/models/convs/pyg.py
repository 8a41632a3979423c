"""PyG's convolutions as steps, each as ``torch_geometric.nn.conv`` computes it.

Unlike DGL, PyG's GCN and attention make sure of one self-loop per node, GCN's degrees are sums
of edge weights over in-edges at both ends, and the bias follows the residual.
"""

from __future__ import annotations

import torch

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.gin import gin
from embertide.models.convs.propagate import propagate
from embertide.models.options.pyg import (
    PygGat,
    PygGatv2,
    PygGcn,
    PygGin,
    PygHeads,
    PygPropagate,
    PygSage,
)
from embertide.models.weights import Scope
from embertide.steps import Loops


def gcn(b: ProgramBuilder, s: Scope, o: PygGcn, x: str) -> str:
    """GCNConv; a new self-loop of an ``improved`` one weighs 2 in a weighted graph."""
    weight = s.take("lin.weight", "out", "in")
    bias = s.take("bias", "out") if o.bias else None

    def aggregate(h: str) -> str:
        return _gcn_sum(b, o, h, loop_weight=2.0 if o.improved else 1.0)

    if s.size("out") > s.size("in"):
        return b.linear(aggregate(x), weight, s.size("out"), bias)
    total = aggregate(b.linear(x, weight, s.size("out")))
    return total if bias is None else b.affine(total, None, bias)


def _gcn_sum(
    b: ProgramBuilder, o: PygGcn | PygPropagate, h: str, *, loop_weight: float = 1.0
) -> str:
    """The sum over in-edges, with gcn_norm's self-loops and degrees unless told otherwise."""
    return b.aggregate(
        h,
        norm="sym_in_weighted" if o.normalize else "none",
        loops=_loops(o.normalize if o.add_self_loops is None else o.add_self_loops),
        loop_weight=loop_weight,
        edge_weight=o.uses_edge_weight,
    )


def pyg_propagate(b: ProgramBuilder, _s: Scope, o: PygPropagate, x: str) -> str:
    """APPNP; with ``alpha: 0`` SGConv before its Linear."""
    return propagate(b, x, o.K, o.alpha, lambda h: _gcn_sum(b, o, h))


def _loops(add: bool) -> Loops:
    return "single" if add else "keep"


def sage(b: ProgramBuilder, s: Scope, o: PygSage, x: str) -> str:
    """SAGEConv: lin_l holds the bias, which every node gets, with neighbours or without."""
    weight = s.take("lin_l.weight", "out", "in")
    bias = s.take("lin_l.bias", "out") if o.bias else None
    out = s.size("out")
    if o.project:
        inner, shift = s.take("lin.weight", "in", "in"), s.take("lin.bias", "in")
        h = b.activation(b.linear(x, inner, s.size("in"), shift), "relu")
    else:
        h = x
    if o.aggr != "max" and out <= s.size("in"):
        total = _sage_total(b, o, b.linear(h, weight, out))
    else:
        # The bias rides on this product only where no product of the node itself can carry it.
        late = None if o.root_weight else bias
        total = b.linear(_sage_total(b, o, h), weight, out, late)
        bias = bias if o.root_weight else None
    if o.root_weight:
        root = s.take("lin_r.weight", "out", "in")
        total = b.combine(b.linear(x, root, out, bias), total)
    elif bias is not None:
        total = b.affine(total, None, bias)
    return b.row_normalize(total) if o.normalize else total


def _sage_total(b: ProgramBuilder, o: PygSage, h: str) -> str:
    if o.aggr == "max":
        return b.aggregate(h, reduce="max")
    return b.aggregate(h, norm="in" if o.aggr == "mean" else "none")


def gat(b: ProgramBuilder, s: Scope, o: PygGat, x: str) -> str:
    """GATConv; versions before 2.5 store one shared projection as lin_src (and lin_dst)."""
    if o.heads is not None:
        s.agree("heads", o.heads)
    source = s.take("att_src", 1, "heads", "width", heads=True)
    target = s.take("att_dst", 1, "heads", "width", heads=True)
    s.bind("columns", "heads", "width")
    heads, columns = s.size("heads"), s.size("columns")
    h = b.linear(x, s.take_any(("lin.weight", "lin_src.weight"), "columns", "in"), columns)
    other = h
    if s.has("lin_dst.weight"):
        weight = s.take("lin_dst.weight", "columns", "in")
        if not _equal(s, "lin_src.weight", "lin_dst.weight"):
            other = b.linear(x, weight, columns)
    out = b.attend(
        h,
        b.head_dot(h, source, heads),
        b.head_dot(other, target, heads),
        heads,
        negative_slope=o.negative_slope,
        loops=_loops(o.add_self_loops),
    )
    return _finish(b, s, o, x, out)


def _equal(s: Scope, one: str, other: str) -> bool:
    found = s.weights.found
    first, second = found.get(s.name(one)), found.get(s.name(other))
    return first is not None and second is not None and torch.equal(first, second)


def gatv2(b: ProgramBuilder, s: Scope, o: PygGatv2, x: str) -> str:
    """GATv2Conv: lin_l gives keys and values, lin_r queries."""
    if o.heads is not None:
        s.agree("heads", o.heads)
    vector = s.take("att", 1, "heads", "width", heads=True)
    s.bind("columns", "heads", "width")
    name = s.shared("lin_l", "lin_r") if o.share_weights else "lin_l"
    key = _projection(b, s, x, name, o.bias)
    query = key if o.share_weights else _projection(b, s, x, "lin_r", o.bias)
    out = b.pair_attend(
        key,
        query,
        s.size("heads"),
        kind="gatv2",
        vector=vector,
        negative_slope=o.negative_slope,
        loops=_loops(o.add_self_loops),
    )
    return _finish(b, s, o, x, out)


def _projection(b: ProgramBuilder, s: Scope, x: str, name: str, bias: bool) -> str:
    weight = s.take(f"{name}.weight", "columns", "in")
    shift = s.take(f"{name}.bias", "columns") if bias else None
    return b.linear(x, weight, s.size("columns"), shift)


def _finish(b: ProgramBuilder, s: Scope, o: PygHeads, x: str, out: str) -> str:
    """Join or average the heads, then add the residual (always projected) and the bias."""
    if o.concat:
        s.bind("out", "columns")
    else:
        s.bind("out", "width")
        out = b.head_mean(out, s.size("heads"))
    bias = s.take("bias", "out") if o.bias else None
    if o.residual:
        weight = s.take("res.weight", "out", "in")
        return b.combine(b.linear(x, weight, s.size("out"), bias), out)
    return out if bias is None else b.affine(out, None, bias)


def pyg_gin(b: ProgramBuilder, s: Scope, o: PygGin, x: str) -> str:
    """GINConv; its function is stored under ``nn``."""
    return gin(b, s, o, x, o.aggr, "nn")
