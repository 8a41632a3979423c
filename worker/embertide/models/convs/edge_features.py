"""Convolutions whose messages or scores read the features of the edges.

Each is one message step: what it needs of both ends comes with the sources' rows, or from the
targets'.
"""

from __future__ import annotations

from embertide.kernels.edge_features import LoopFill
from embertide.models.builder import ProgramBuilder
from embertide.models.convs.ends import Ends
from embertide.models.convs.gin import finish_gin
from embertide.models.options.dgl_edges import DglEdgeGat, DglGine
from embertide.models.options.pyg_edges import PygGine
from embertide.models.weights import Scope
from embertide.steps import Loops


def edge_projection(s: Scope, name: str, columns: int | None) -> str:
    """The weight by which features of edges are projected; their number is the size ``edge``."""
    weight = s.take(f"{name}.weight", "columns", "edge")
    if columns is not None:
        s.agree("edge", columns)
    return weight


def attend_edges(
    b: ProgramBuilder,
    s: Scope,
    values: str,
    scores: tuple[str, str],
    params: tuple[str, str],
    *,
    negative_slope: float,
    loops: Loops = "keep",
    fill: LoopFill = "mean",
    carry: bool = False,
) -> str:
    """Additive attention with a third score, of the projected features of the edge.

    Args:
        values: [N, H*F] of the sources.
        scores: [N, H] of the sources and of the targets.
        params: the projection [H*F, K] and the vector [H, F] of the edges' scores.
        fill: what an added self-loop has as features.
        carry: add the projected features to the source's values.
    """
    heads, columns = s.size("heads"), s.size("columns")
    lines = (
        f"value = narrow(s, 1, 0, {columns})",
        f"source = narrow(s, 1, {columns}, {heads})",
        "moved = linear(e, p0)",
        f"apart = reshape(moved, [{heads}, -1])",
        "parts = mul(apart, p1)",
        "own = sum(parts, 2)",
        "ends = add(source, t)",
        "three = add(ends, own)",
        f"score = leaky_relu(three, {negative_slope})",
        "out = add(value, moved)" if carry else "out = same(value)",
    )
    return b.message(
        b.concat((values, scores[0])),
        lines,
        columns,
        reduce="softmax",
        target=scores[1],
        params=params,
        loops=loops,
        edge_features=s.size("edge"),
        loop_features=fill,
    )


def attend_pairs(
    b: ProgramBuilder,
    s: Scope,
    key: str,
    query: str,
    params: tuple[str, str],
    *,
    negative_slope: float,
    loops: Loops,
    fill: LoopFill,
) -> str:
    """GATv2's attention, whose score reads the projected features of the edge with both ends."""
    lines = (
        "moved = linear(e, p0)",
        "ends = add(s, t)",
        "three = add(ends, moved)",
        f"lit = leaky_relu(three, {negative_slope})",
        f"apart = reshape(lit, [{s.size('heads')}, -1])",
        "parts = mul(apart, p1)",
        "score = sum(parts, 2)",
        "out = same(s)",
    )
    return b.message(
        key,
        lines,
        s.size("columns"),
        reduce="softmax",
        target=query,
        params=params,
        loops=loops,
        edge_features=s.size("edge"),
        loop_features=fill,
    )


def attend_dots(
    b: ProgramBuilder, s: Scope, ends: tuple[str, str, str], weight: str, heads: int, scale: float
) -> str:
    """Attention by dot products; projected features of the edge are added to keys and values.

    Args:
        ends: keys and values of the sources, queries of the targets.
    """
    key, value, query = ends
    columns = s.size("columns")
    lines = (
        f"own_key = narrow(s, 1, 0, {columns})",
        f"own_value = narrow(s, 1, {columns}, {columns})",
        "moved = linear(e, p0)",
        "key = add(own_key, moved)",
        "products = mul(key, t)",
        f"apart = reshape(products, [{heads}, -1])",
        "dots = sum(apart, 2)",
        f"score = mul(dots, {scale})",
        "out = add(own_value, moved)",
    )
    return b.message(
        b.concat((key, value)),
        lines,
        columns,
        reduce="softmax",
        target=query,
        params=(weight,),
        edge_features=s.size("edge"),
    )


def pyg_gine(b: ProgramBuilder, s: Scope, o: PygGine, x: Ends) -> str:
    """GINEConv; without ``edge_dim`` edges have as many features as nodes."""
    reduce = "sum" if o.aggr == "add" else o.aggr
    if o.edge_dim is None:
        lines: tuple[str, ...] = ("both = add(s, e)", "out = relu(both)")
        params: tuple[str, ...] = ()
        edge = s.size("in")
    else:
        params = s.take("lin.weight", "in", "edge"), s.take("lin.bias", "in")
        s.agree("edge", o.edge_dim)
        lines = ("moved = linear(e, p0, p1)", "both = add(s, moved)", "out = relu(both)")
        edge = s.size("edge")
    b.learn(x.source, s.size("in"))
    total = b.message(
        x.source, lines, s.size("in"), reduce=reduce, params=params, edge_features=edge
    )
    return finish_gin(b, s, o, x, total, "nn")


def dgl_gine(b: ProgramBuilder, s: Scope, o: DglGine, x: Ends) -> str:
    """GINEConv: edges have as many features as nodes."""
    lines, width = ("both = add(s, e)", "out = relu(both)"), s.size("in")
    total = b.message(x.source, lines, width, edge_features=width)
    return finish_gin(b, s, o, x, total, "apply_func")


def edge_gat(b: ProgramBuilder, s: Scope, o: DglEdgeGat, x: Ends) -> str:
    """EdgeGATConv: the projected features of the edge are scored, and added to the source."""
    if o.num_heads is not None:
        s.agree("heads", o.num_heads)
    left, right, edge = (
        s.take(name, 1, "heads", "width", heads=True) for name in ("attn_l", "attn_r", "attn_edge")
    )
    s.bind("columns", "heads", "width")
    s.bind("out", "columns")
    columns, heads = s.size("columns"), s.size("heads")
    names = ("fc_src", "fc_dst") if s.has("fc_src.weight") else ("fc", "fc")
    h = b.linear(x.source, s.take(f"{names[0]}.weight", "columns", "in"), columns)
    own = "in" if names[0] == names[1] else x.own
    of_target = s.take(f"{names[1]}.weight", "columns", own)
    other = h if x.within and names[0] == names[1] else b.linear(x.target, of_target, columns)
    out = attend_edges(
        b,
        s,
        h,
        (b.head_dot(h, left, heads), b.head_dot(other, right, heads)),
        (edge_projection(s, "fc_edge", o.edge_feats), edge),
        negative_slope=o.negative_slope,
        carry=True,
    )
    bias = s.take("bias", "out") if o.bias else None
    if not o.residual:
        return out if bias is None else b.affine(out, None, bias)
    weight = s.take("res_fc.weight", "out", x.own)
    return b.combine(b.linear(x.target, weight, columns, bias), out)
