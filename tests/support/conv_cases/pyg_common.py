"""PyG's convolutions that most models have: every option."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from tests.support.conv_cases.case import FOLDED, ConvCase, Make
from tests.support.pyg import pyg

WIDE, NARROW = (5, 12), (12, 4)

Case = partial(ConvCase, on_grids=True)
"""A case that every grid runs, unless it differs in how it is read, not in what is computed."""


def gcn(size: tuple[int, int], **more: Any) -> Make:
    return lambda n: n.GCNConv(*size, **more)


def sage(size: tuple[int, int], **more: Any) -> Make:
    return lambda n: n.SAGEConv(*size, **more)


def gat(*size: int, **more: Any) -> Make:
    return lambda n: n.GATConv(*size, **more)


def gatv2(*size: int, **more: Any) -> Make:
    return lambda n: n.GATv2Conv(*size, **more)


def gin(function: Callable[[], nn.Module], **more: Any) -> Make:
    return lambda n: n.GINConv(function(), **more)


def sequential() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.ELU(0.5), nn.Linear(9, 4))


CASES = {
    **{
        f"gcn-{'wide' if size == WIDE else 'narrow'}-{name}{'-weighted' * weights}": Case(
            gcn(size, **more), f"conv: gcn{options}", weights, on_grids=on_grids
        )
        for size in (WIDE, NARROW)
        for weights in (False, True)
        for name, more, options, on_grids in (
            ("default", {}, "", False),
            ("improved", {"improved": True}, ", improved: true", True),
            ("no-loops", {"add_self_loops": False}, ", add_self_loops: false", True),
            ("plain", {"normalize": False}, ", normalize: false", False),
        )
    },
    "gcn-no-bias": Case(gcn(NARROW, bias=False), "conv: gcn, bias: false", on_grids=False),
    "gcn-no-bias-wide": Case(gcn(WIDE, bias=False), "conv: gcn, bias: false", on_grids=False),
    **{
        f"sage-{aggr}-{'wide' if size == WIDE else 'narrow'}-{name}": Case(
            sage(size, aggr=aggr, **more),
            f"conv: sage, aggr: {aggr}{options}",
            on_grids=aggr in ("mean", "max") and size == size_on_grids,
        )
        for size in (WIDE, NARROW)
        for aggr in ("mean", "max", "sum", "add")
        for name, more, options, size_on_grids in (
            ("default", {}, "", None),
            ("rootless", {"root_weight": False}, ", root_weight: false", None),
            ("no-bias", {"bias": False}, ", bias: false", None),
            ("project", {"project": True}, ", project: true", NARROW),
            ("normalize", {"normalize": True}, ", normalize: true", WIDE),
        )
    },
    "sage-default": Case(sage(NARROW), "conv: sage", on_grids=False),
    "sage-all": Case(
        sage(WIDE, project=True, normalize=True, root_weight=False, bias=False),
        "conv: sage, project: true, normalize: true, root_weight: false, bias: false",
        on_grids=False,
    ),
    **{
        f"{conv}-{name}": Case(make(5, 4, **more), f"conv: {conv}{options}", on_grids=on_grids)
        for conv, make in (("gat", gat), ("gatv2", gatv2))
        for name, more, options, on_grids in (
            ("one-head", {}, "", False),
            ("heads", {"heads": 3}, "", True),
            ("heads-checked", {"heads": 3}, ", heads: 3", False),
            ("average", {"heads": 3, "concat": False}, ", concat: false", True),
            ("no-loops", {"heads": 3, "add_self_loops": False}, ", add_self_loops: false", True),
            ("slope", {"heads": 3, "negative_slope": 0.7}, ", negative_slope: 0.7", False),
            ("no-bias", {"heads": 3, "bias": False}, ", bias: false", False),
            ("residual", {"heads": 3, "residual": True}, ", residual: true", True),
            (
                "residual-average-no-bias",
                {"heads": 3, "residual": True, "concat": False, "bias": False},
                ", residual: true, concat: false, bias: false",
                False,
            ),
        )
    },
    "gat-two-projections": Case(gat((5, 5), 4, heads=3), "conv: gat", on_grids=False),
    "gatv2-shared": Case(
        gatv2(5, 4, heads=3, share_weights=True), "conv: gatv2, share_weights: true", on_grids=False
    ),
    **{
        f"gin-{aggr}": Case(
            gin(lambda: nn.Linear(5, 4), eps=0.3, aggr=aggr),
            f"conv: gin, aggr: {aggr}",
            on_grids=aggr in ("sum", "max"),
        )
        for aggr in ("add", "sum", "mean", "max")
    },
    "gin-trained-eps": Case(
        gin(lambda: nn.Linear(5, 4), train_eps=True), "conv: gin", on_grids=False
    ),
    "gin-sequential": Case(
        gin(sequential),
        "conv: gin, mlp: [linear, batch_norm, {activation: {kind: elu, slope: 0.5}}, linear]",
        tolerance=FOLDED,
    ),
    "gin-mlp": Case(
        gin(lambda: pyg.MLP([5, 8, 6, 4])),
        "conv: gin, mlp: [linear, batch_norm, relu, linear, batch_norm, relu, linear]",
        tolerance=FOLDED,
    ),
}
