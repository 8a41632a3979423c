"""PyG's convolutions beyond the common ones: every option, held against the module."""

from __future__ import annotations

from typing import Any

from torch import Tensor, arange, nn

from tests.support.conv_cases.case import WIDTH, ConvCase


def from_input(conv: Any, x: Tensor, edges: Tensor, **weights: Tensor) -> Tensor:
    """The features are the initial representation."""
    return conv(x, x, edges, **weights)


def embedding(model: Any, x: Tensor, edges: Tensor, **weights: Tensor) -> Tensor:
    """What LightGCN gives where its table holds the features."""
    model.embedding = nn.Embedding.from_pretrained(x)
    return model.get_embedding(edges, **weights)


def with_lambda(conv: Any, x: Tensor, edges: Tensor) -> Tensor:
    """ChebConv's forward with the largest eigenvalue given."""
    return conv(x, edges, lambda_max=1.75)


_GRAPH = {
    f"graph-{aggr}-{size}{'-weighted' * weighted}": ConvCase(
        lambda n, aggr=aggr, out=out: n.GraphConv(5, out, aggr=aggr),
        f"conv: graph, aggr: {aggr}",
        weighted,
    )
    for aggr in ("add", "sum", "mean", "max")
    for size, out in (("wide", 8), ("narrow", 3))
    for weighted in (size == "wide",)
} | {
    **{
        f"graph-{aggr}": ConvCase(
            lambda n, aggr=aggr: n.GraphConv(5, 3, aggr=aggr), f"conv: graph, aggr: {aggr}", True
        )
        for aggr in ("min", "var", "std")
    },
    **{
        f"sage-{aggr}": ConvCase(
            lambda n, aggr=aggr: n.SAGEConv(5, 3, aggr=aggr), f"conv: sage, aggr: {aggr}"
        )
        for aggr in ("min", "var", "std")
    },
    **{
        f"sage-{'-'.join(aggrs)}": ConvCase(
            lambda n, aggrs=aggrs, out=out, more=more: n.SAGEConv(5, out, aggr=list(aggrs), **more),
            f"conv: sage, aggrs: [{', '.join(aggrs)}]{options}",
        )
        for aggrs, out, more, options in (
            (("mean", "max", "std"), 3, {}, ""),
            (("max", "sum"), 8, {"root_weight": False}, ", root_weight: false"),
            (
                ("sum", "min"),
                3,
                {"root_weight": False, "project": True},
                ", root_weight: false, project: true",
            ),
        )
    },
    **{
        f"gin-{aggr}": ConvCase(
            lambda n, aggr=aggr: n.GINConv(nn.Linear(5, 3), aggr=aggr), f"conv: gin, aggr: {aggr}"
        )
        for aggr in ("min", "var", "std")
    },
    "le": ConvCase(lambda n: n.LEConv(5, 3), "conv: le", True),
    "le-no-bias": ConvCase(lambda n: n.LEConv(5, 3, bias=False), "conv: le, bias: false"),
    "graph-default": ConvCase(lambda n: n.GraphConv(5, 3), "conv: graph", True),
    "graph-no-bias": ConvCase(
        lambda n: n.GraphConv(5, 3, bias=False), "conv: graph, bias: false", True
    ),
}

_ATTENTION = {
    "transformer-one-head": ConvCase(lambda n: n.TransformerConv(5, 4), "conv: transformer"),
    "transformer-heads": ConvCase(
        lambda n: n.TransformerConv(5, 4, heads=3), "conv: transformer, heads: 3"
    ),
    "transformer-average": ConvCase(
        lambda n: n.TransformerConv(5, 4, heads=3, concat=False),
        "conv: transformer, heads: 3, concat: false",
    ),
    "transformer-rootless": ConvCase(
        lambda n: n.TransformerConv(5, 4, heads=2, root_weight=False),
        "conv: transformer, heads: 2, root_weight: false",
    ),
    "transformer-beta": ConvCase(
        lambda n: n.TransformerConv(5, 4, heads=3, beta=True),
        "conv: transformer, heads: 3, beta: true",
    ),
    "transformer-no-bias": ConvCase(
        lambda n: n.TransformerConv(5, 4, heads=2, bias=False),
        "conv: transformer, heads: 2, bias: false",
    ),
    "agnn": ConvCase(lambda n: n.AGNNConv(), "conv: agnn", more=WIDTH),
    "agnn-fixed-no-loops": ConvCase(
        lambda n: n.AGNNConv(requires_grad=False, add_self_loops=False),
        "conv: agnn, add_self_loops: false",
        more=WIDTH,
    ),
}

_PROPAGATION = {
    "appnp": ConvCase(lambda n: n.APPNP(3, 0.2), "conv: appnp, K: 3, alpha: 0.2", True, more=WIDTH),
    "appnp-plain": ConvCase(
        lambda n: n.APPNP(2, 0.2, normalize=False),
        "conv: appnp, K: 2, alpha: 0.2, normalize: false",
        True,
        more=WIDTH,
    ),
    "appnp-no-loops": ConvCase(
        lambda n: n.APPNP(2, 0.2, add_self_loops=False),
        "conv: appnp, K: 2, alpha: 0.2, add_self_loops: false",
        more=WIDTH,
    ),
    "lg": ConvCase(lambda n: n.LGConv(), "conv: lg", True, more=WIDTH),
    "lg-plain": ConvCase(
        lambda n: n.LGConv(normalize=False), "conv: lg, normalize: false", more=WIDTH
    ),
    "lightgcn": ConvCase(
        lambda n: n.LightGCN(37, 5, 3), "conv: lightgcn", True, forward=embedding, exported=False
    ),
    "lightgcn-plain": ConvCase(
        lambda n: n.LightGCN(37, 5, 2, alpha=0.7, normalize=False),
        "conv: lightgcn, normalize: false",
        forward=embedding,
        exported=False,
    ),
}

_FILTERS = {
    **{
        f"{kind}-{size}{'-weighted' * weighted}": ConvCase(
            lambda n, name=name, out=out, more=more: getattr(n, name)(5, out, **more),
            f"conv: {kind}{options}",
            weighted,
        )
        for kind, name, more, options in (
            ("sg", "SGConv", {"K": 3}, ", K: 3"),
            ("ssg", "SSGConv", {"K": 2, "alpha": 0.3}, ", K: 2, alpha: 0.3"),
            ("tag", "TAGConv", {}, ""),
            ("arma", "ARMAConv", {}, ""),
        )
        for size, out in (("wide", 8), ("narrow", 3))
        for weighted in (size == "narrow",)
    },
    "sg-default-no-bias": ConvCase(
        lambda n: n.SGConv(5, 3, bias=False), "conv: sg, bias: false", True
    ),
    "sg-no-loops": ConvCase(
        lambda n: n.SGConv(5, 3, K=2, add_self_loops=False), "conv: sg, K: 2, add_self_loops: false"
    ),
    "ssg-no-loops": ConvCase(
        lambda n: n.SSGConv(5, 3, alpha=0.3, add_self_loops=False, bias=False),
        "conv: ssg, alpha: 0.3, add_self_loops: false, bias: false",
    ),
    "tag-plain": ConvCase(
        lambda n: n.TAGConv(5, 3, K=2, normalize=False),
        "conv: tag, K: 2, normalize: false",
        True,
    ),
    "tag-one-no-bias": ConvCase(
        lambda n: n.TAGConv(5, 8, K=1, bias=False), "conv: tag, K: 1, bias: false"
    ),
    **{
        f"cheb-{size}{'-weighted' * weighted}": ConvCase(
            lambda n, out=out: n.ChebConv(5, out, K=4), "conv: cheb", weighted
        )
        for size, out in (("wide", 8), ("narrow", 3))
        for weighted in (size == "narrow",)
    },
    "cheb-walk": ConvCase(
        lambda n: n.ChebConv(5, 3, K=2, normalization="rw", bias=False),
        "conv: cheb, K: 2, normalization: rw, bias: false",
        True,
    ),
    "cheb-lambda": ConvCase(
        lambda n: n.ChebConv(5, 8, K=3),
        "conv: cheb, lambda_max: 1.75",
        forward=with_lambda,
    ),
    "arma-stacks": ConvCase(
        lambda n: n.ARMAConv(5, 3, num_stacks=2, num_layers=3),
        "conv: arma, num_layers: 3",
        True,
    ),
    "arma-shared": ConvCase(
        lambda n: n.ARMAConv(5, 3, num_stacks=2, num_layers=3, shared_weights=True),
        "conv: arma, num_layers: 3, shared_weights: true",
    ),
    "arma-linear-no-bias": ConvCase(
        lambda n: n.ARMAConv(5, 3, num_layers=2, act=None, bias=False),
        "conv: arma, act: null, bias: false",
    ),
    "gcn2": ConvCase(
        lambda n: n.GCN2Conv(5, 0.2, theta=0.5, layer=2),
        "conv: gcn2, x_0: input, alpha: 0.2, theta: 0.5, layer: 2",
        True,
        forward=from_input,
    ),
    "gcn2-two-weights": ConvCase(
        lambda n: n.GCN2Conv(5, 0.2, theta=0.5, layer=2, shared_weights=False),
        "conv: gcn2, x_0: input, alpha: 0.2, theta: 0.5, layer: 2",
        forward=from_input,
    ),
    "gcn2-plain": ConvCase(
        lambda n: n.GCN2Conv(5, 0.2, normalize=False),
        "conv: gcn2, x_0: input, alpha: 0.2, normalize: false",
        True,
        forward=from_input,
    ),
    "gcn2-no-loops": ConvCase(
        lambda n: n.GCN2Conv(5, 0.2, add_self_loops=False),
        "conv: gcn2, x_0: input, alpha: 0.2, add_self_loops: false",
        forward=from_input,
    ),
}


def with_eps(conv: Any, x: Tensor, edges: Tensor) -> Tensor:
    """The module as it is with another eps than the stored one."""
    conv.eps.fill_(0.25)
    return conv(x, edges)


_SAID = {
    "gcn-loops": ConvCase(lambda n: n.GCNConv(5, 3), "conv: gcn, add_self_loops: true", True),
    "gin-eps": ConvCase(
        lambda n: n.GINConv(nn.Linear(5, 3)), "conv: gin, eps: 0.25", forward=with_eps
    ),
    "propagate-loops": ConvCase(
        lambda n: n.APPNP(2, 0.2),
        "conv: propagate, K: 2, alpha: 0.2, add_self_loops: true",
        more=WIDTH,
    ),
}

DEGREES = arange(12)
"""A histogram of degrees, as PNAConv is given the training set's."""


def _pna(name: str, options: str, *columns: int, **more: Any) -> dict[str, ConvCase]:
    """PNAConv with some of the aggregators and scalers; other towers and Linears."""
    words = options.split(" | ")
    aggregators, scalers = (one.split(", ") for one in words)
    said = "".join(
        f", {key}: {str(value).lower()}"
        for key, value in more.items()
        if key in ("divide_input", "act")
    )
    return {
        f"pna-{name}": ConvCase(
            lambda n: n.PNAConv(*columns, aggregators, scalers, DEGREES, **more),
            f"conv: pna, aggregators: [{words[0]}], scalers: [{words[1]}]{said}",
        )
    }


_DEGREES = {
    **_pna("mean-max", "mean, max | identity, amplification", 5, 4),
    **_pna("all", "sum, min, var, std | attenuation, linear, inverse_linear", 5, 4, towers=2),
    **_pna("divided", "mean, std | identity", 6, 4, towers=2, divide_input=True),
    **_pna(
        "deep",
        "mean, min, std | identity, linear",
        5,
        4,
        towers=2,
        pre_layers=2,
        post_layers=2,
        act="elu",
    ),
    "fa": ConvCase(lambda n: n.FAConv(5), "conv: fa, x_0: input", forward=from_input),
    "fa-no-loops": ConvCase(
        lambda n: n.FAConv(5, eps=0.3, add_self_loops=False),
        "conv: fa, x_0: input, eps: 0.3, add_self_loops: false",
        forward=from_input,
    ),
    "fa-plain": ConvCase(
        lambda n: n.FAConv(5, eps=0.0, normalize=False),
        "conv: fa, x_0: input, eps: 0.0, normalize: false, edge_weight: true",
        True,
        forward=from_input,
        exported=False,  # it fails without weights, which an export tries, too
    ),
}

CASES = {
    **_DEGREES,
    **_SAID,
    **_GRAPH,
    **_ATTENTION,
    **_PROPAGATION,
    **_FILTERS,
}
