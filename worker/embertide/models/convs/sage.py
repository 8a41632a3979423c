"""GraphSAGE (Hamilton et al., 2017, algorithm 1), for both libraries.

    out_i = W_1 x_i + W_2 reduce over edges j -> i of x_j + b,    x [N, in], out [N, out]

Where the result is narrower, W_2 comes before a sum or mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field

from embertide.models.builder import ProgramBuilder
from embertide.models.convs.shared.aggregation import LINEAR, aggregate, aggregates_otherwise
from embertide.models.convs.shared.option_texts import AGGR, REFUSED_AGGR
from embertide.models.convs.shared.split_linear import split_linear
from embertide.models.ends import Ends
from embertide.models.known_modules import KnownModule
from embertide.models.layer import Layer, Problems
from embertide.models.registry import convolution
from embertide.models.weights import Scope


def _lstm(m: Any) -> str:
    lstm = m._aggre_type == "lstm"
    return "aggregator_type='lstm', which depends on the order of edges" if lstm else ""


def _sage_bias(m: Any) -> bool:
    """``gcn`` has its own bias, the others have it in fc_self."""
    own = m.bias if m._aggre_type == "gcn" else m.fc_self.bias
    return own is not None


@convolution(
    "dgl",
    module=KnownModule(
        bias="",
        read={"bias": _sage_bias, "aggregator_type": lambda m: m._aggre_type},
        after=("activation", "norm"),
        problem=_lstm,
        x="feat",
        weight="edge_weight",
    ),
)
class DglSage(Layer):
    """GraphSAGE."""

    between_types = True
    weighted = True
    marks = ("fc_neigh.weight", "fc_self.weight")
    refused: ClassVar[dict[str, dict[str, str]]] = {
        "aggregator_type": {"lstm": "it depends on the order of the edges, and a graph has none"}
    }
    module = "dgl.nn.SAGEConv"
    conv: Literal["sage"] = Field(description="GraphSAGE")
    aggregator_type: Literal["mean", "gcn", "pool"] | None = Field(
        default=None,
        description="how neighbours are joined; without it, the parameters show it",
    )

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """SAGEConv: ``gcn`` has no fc_self but its own bias, the others have fc_self."""
        kind = self.aggregator_type or _sage_kind(s)
        neighbours = s.take("fc_neigh.weight", "out", "in")
        own = None if kind == "gcn" else s.take("fc_self.weight", "out", x.own)
        # Until DGL 1.0 the bias stood beside fc_self, not in it.
        places = ("bias",) if kind == "gcn" else ("fc_self.bias", "bias")
        bias = s.take_any(places, "out") if self.bias else None
        if kind == "pool":
            total = _sage_pool(b, s, self, x.source, neighbours)
        elif s.size("out") <= s.size("in"):
            first = b.linear(x.source, neighbours, s.size("out"))
            total = _sage_total(
                b, self, kind, first, lambda: _sage_target(b, s, x, first, neighbours)
            )
        else:
            total = _sage_total(b, self, kind, x.source, lambda: x.target)
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


@convolution(
    "pyg",
    module=KnownModule(
        bias="lin_l.bias",
        read={
            "aggr": lambda m: "mean" if isinstance(m.aggr, list) else m.aggr,
            "aggrs": lambda m: tuple(m.aggr) if isinstance(m.aggr, list) else None,
        },
        by_messages=aggregates_otherwise,
    ),
)
class PygSage(Layer):
    """GraphSAGE."""

    between_types = True
    target_optional = True
    marks = ("lin_l.weight", "lin_r.weight")
    refused = REFUSED_AGGR
    module = "torch_geometric.nn.SAGEConv"
    conv: Literal["sage"] = Field(description="GraphSAGE")
    aggr: Literal["mean", "max", "sum", "add", "min", "var", "std"] = Field(
        default="mean", description=AGGR
    )
    aggrs: tuple[Literal["mean", "max", "sum", "add", "min", "var", "std"], ...] | None = Field(
        default=None,
        strict=False,
        min_length=1,
        description="in the place of `aggr` where the module was given a list of them: their"
        " results side by side",
    )
    normalize: bool = Field(default=False, description="rows of the result get length one")
    root_weight: bool = Field(default=True, description="adds the node itself (lin_r)")
    project: bool = Field(default=False, description="neighbours pass lin and relu first")

    def conflicts(self) -> Problems:
        """One way of aggregating, or several."""
        if self.aggrs is not None and self.aggr != "mean":
            return [(("aggr",), "is in aggrs, too; remove one of the two")]
        return []

    def steps(self, b: ProgramBuilder, s: Scope, x: Ends) -> str:
        """SAGEConv: lin_l holds the bias, which every node gets, with neighbours or without."""
        aggrs = self.aggrs or (self.aggr,)
        weights = (
            split_linear(s, "lin_l.weight", len(aggrs))
            if len(aggrs) > 1
            else [s.take("lin_l.weight", "out", "in")]
        )
        bias = s.take("lin_l.bias", "out") if self.bias else None
        out, rooted = s.size("out"), self.root_weight and x.target != ""
        if self.project:
            inner, shift = s.take("lin.weight", "in", "in"), s.take("lin.bias", "in")
            h = b.activation(b.linear(x.source, inner, s.size("in"), shift), "relu")
        else:
            h = x.source
        total = ""
        for aggr, weight in zip(aggrs, weights, strict=True):
            if aggr in LINEAR and out <= s.size("in"):
                part = aggregate(b, b.linear(h, weight, out), aggr)
            else:
                # The bias rides on one such product where no product of the node can carry it.
                late = None if rooted else bias
                part = b.linear(aggregate(b, h, aggr), weight, out, late)
                bias = bias if rooted else None
            total = b.combine(total, part) if total else part
        if rooted:
            root = s.take("lin_r.weight", "out", x.own)
            total = b.combine(b.linear(x.target, root, out, bias), total)
        elif bias is not None:
            total = b.affine(total, None, bias)
        if self.root_weight and not x.target:
            s.pass_over("lin_r.weight")
        return b.row_normalize(total) if self.normalize else total
