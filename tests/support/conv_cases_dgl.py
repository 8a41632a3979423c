"""DGL's convolutions beyond those of test_models_dgl: every option, held against the module."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tests.support.conv_case import ConvCase

WIDTH = "input_width: 5\n"
ZERO = {"allow_zero_in_degree": True}


def from_input(conv: Any, graph: Any, x: Tensor, **weights: Tensor) -> Tensor:
    """The features are the initial representation."""
    return conv(graph, x, x, **weights)


def with_lambda(conv: Any, graph: Any, x: Tensor) -> Tensor:
    """ChebConv's forward with the largest eigenvalue given."""
    return conv(graph, x, [1.75])


def with_default_lambda(conv: Any, graph: Any, x: Tensor) -> Tensor:
    """The same with DGL's default, which it would warn of."""
    return conv(graph, x, [2])


CASES = {
    "appnp": ConvCase(lambda n: n.APPNPConv(3, 0.2), "conv: appnp, k: 3, alpha: 0.2", more=WIDTH),
    **{
        f"{kind}-{size}": ConvCase(
            lambda n, name=name, out=out, more=more: getattr(n, name)(5, out, **more),
            f"conv: {kind}{options}",
            forward=forward,
        )
        for kind, name, more, options, forward in (
            ("sg", "SGConv", {"k": 3, **ZERO}, ", k: 3", ConvCase.forward),
            ("tag", "TAGConv", {}, "", ConvCase.forward),
            ("cheb", "ChebConv", {"k": 4, "activation": None}, ", k: 4", with_default_lambda),
        )
        for size, out in (("wide", 8), ("narrow", 3))
    },
    "sg-no-bias": ConvCase(lambda n: n.SGConv(5, 3, bias=False, **ZERO), "conv: sg, bias: false"),
    "sg-cached": ConvCase(lambda n: n.SGConv(5, 8, bias=False, **ZERO), "conv: sg, bias: false"),
    "tag-activation": ConvCase(
        lambda n: n.TAGConv(5, 3, k=4, bias=False, activation=nn.Tanh()),
        "conv: tag, k: 4, bias: false, activation: tanh",
    ),
    **{
        f"cheb-lambda-{size}": ConvCase(
            lambda n, out=out: n.ChebConv(5, out, 3),
            "conv: cheb, k: 3, lambda_max: 1.75, activation: relu",
            forward=with_lambda,
        )
        for size, out in (("wide", 8), ("narrow", 3))
    },
    "cheb-one-no-bias": ConvCase(
        lambda n: n.ChebConv(5, 3, 1, activation=None, bias=False),
        "conv: cheb, k: 1, bias: false",
        forward=with_default_lambda,
    ),
    "gcn2": ConvCase(
        lambda n: n.GCN2Conv(5, 2, **ZERO),
        "conv: gcn2, feat_0: input, layer: 2",
        forward=from_input,
    ),
    "gcn2-two-weights": ConvCase(
        lambda n: n.GCN2Conv(5, 3, 0.3, 0.5, project_initial_features=False, bias=False, **ZERO),
        "conv: gcn2, feat_0: input, layer: 3, alpha: 0.3, lambda_: 0.5, bias: false",
        forward=from_input,
    ),
    "agnn": ConvCase(lambda n: n.AGNNConv(**ZERO), "conv: agnn", more=WIDTH),
    "agnn-fixed": ConvCase(
        lambda n: n.AGNNConv(init_beta=0.4, learn_beta=False, **ZERO), "conv: agnn", more=WIDTH
    ),
}
