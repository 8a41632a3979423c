"""DGL's own layers with the data set's weights, for whole graphs and for blocks."""

from __future__ import annotations

from typing import Any

import dgl
import torch
from dgl.nn.pytorch import GATConv, GraphConv

from benchmarks.peers.work import HEADS, HOPS, LAYERS, SLOPE, TELEPORT


class Gcn(torch.nn.Module):
    """``GraphConv`` without its norm, between the factors of the whole graph's degrees.

    In a block DGL would take norm "both" from the degrees within the block, which is another
    model: the library's own layer-wise idiom is wrong for GCN unless this is done by hand.
    """

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        rows, columns = weights["weight"].shape
        self.conv = GraphConv(rows, columns, norm="none", bias=False, allow_zero_in_degree=True)
        self.conv.weight.data.copy_(weights["weight"])
        self.bias = weights["bias"]

    def forward(self, graph: Any, x: Any, _targets: int | None, right: torch.Tensor) -> Any:
        return self.conv(graph, x).mul_(right).add_(self.bias)


class Gat(torch.nn.Module):
    """``GATConv`` with its heads side by side."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        out, width = weights["fc.weight"].shape
        self.conv = GATConv(
            width, out // HEADS, HEADS, negative_slope=SLOPE, allow_zero_in_degree=True
        )
        self.conv.load_state_dict(weights)

    def forward(self, graph: Any, x: Any, targets: int | None, _right: torch.Tensor) -> Any:
        ends = x if targets is None else (x, x[:targets])
        return self.conv(graph, ends).flatten(1)


def appnp(graph: Any, x: Any, weights: dict[str, torch.Tensor], left: Any, right: Any) -> Any:
    """``APPNPConv`` behind a Linear, as a sum without weights.

    DGL's module multiplies each message by a one, for the sake of its dropout on edges.
    """
    first = torch.nn.functional.linear(x, weights["lin.weight"], weights["lin.bias"])
    found = first
    for _ in range(HOPS):
        found = dgl.ops.copy_u_sum(graph, found * left).mul_(right * (1 - TELEPORT))
        found.add_(first, alpha=TELEPORT)
    return found


def layers(conv: str, weights: dict[str, torch.Tensor]) -> list[torch.nn.Module]:
    """The three layers, ready to run."""
    kind = Gcn if conv == "gcn" else Gat
    found: list[torch.nn.Module] = []
    for number in range(LAYERS):
        prefix = f"layers.{number}."
        own = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        found.append(kind(own).eval())
    return found
