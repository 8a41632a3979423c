"""Modules that take one graph with numbered relations, on the graph of `typed_world`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.hetero_case import RELATIONS, Tensors
from tests.support.typed_world import COUNTS

TYPES = ("user", "item", "tag")
OFFSET = {"user": 0, "item": COUNTS["user"], "tag": COUNTS["user"] + COUNTS["item"]}


class OneGraph(nn.Module):
    """Projects every type to one width, then one module on all nodes and edges together.

    ``call`` takes the module, all rows, sources and destinations [2, E], the relation [E] and the
    node type [N] of each; edges are in the order of the relations.
    """

    def __init__(
        self,
        lins: nn.Module,
        convs: list[nn.Module],
        call: Callable[[Any, Tensor, Tensor, Tensor, Tensor], Tensor],
    ) -> None:
        super().__init__()
        self.lins, self.convs, self.forward_of = lins, nn.ModuleList(convs), call

    def forward(self, x: Tensors, edges: Any) -> Tensors:
        x = self.lins(x)
        rows = torch.cat([x[name] for name in TYPES])
        counts = torch.tensor([len(x[name]) for name in TYPES])
        kinds = torch.arange(len(TYPES)).repeat_interleave(counts)
        ends = [
            edges[one] + torch.tensor([[OFFSET[one[0]]], [OFFSET[one[2]]]]) for one in RELATIONS
        ]
        relation = torch.arange(len(RELATIONS)).repeat_interleave(
            torch.tensor([end.shape[1] for end in ends])
        )
        for conv in self.convs:
            rows = self.forward_of(conv, rows, torch.cat(ends, 1), relation, kinds)
        return dict(zip(TYPES, rows.split(counts.tolist()), strict=True))
