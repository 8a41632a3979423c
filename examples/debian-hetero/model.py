"""The example's model: two layers of GraphSAGE, with weights of their own for each relation.

An ordinary module of PyTorch Geometric; nothing in it knows that Embertide will run it.
"""

from __future__ import annotations

import torch
from torch_geometric.nn import HeteroConv, SAGEConv

Relation = tuple[str, str, str]
Tensors = dict[str, torch.Tensor]

RELATIONS: list[Relation] = [
    ("package", "depends", "package"),
    ("package", "needed_by", "package"),
    ("package", "recommends", "package"),
    ("package", "recommended_by", "package"),
    ("package", "suggests", "package"),
    ("package", "suggested_by", "package"),
    ("package", "maintained_by", "maintainer"),
    ("maintainer", "maintains", "package"),
    ("package", "in_section", "section"),
    ("section", "contains", "package"),
]


WIDTHS = {"package": 64, "maintainer": 2, "section": 1}
"""Columns of the features."""


class Packages(torch.nn.Module):
    """Embeddings of packages, maintainers and sections."""

    def __init__(self, hidden: int = 64, out: int = 64) -> None:
        super().__init__()
        ends = {relation: (WIDTHS[relation[0]], WIDTHS[relation[2]]) for relation in RELATIONS}
        self.conv1 = HeteroConv(
            {one: SAGEConv(both, hidden) for one, both in ends.items()}, aggr="mean"
        )
        self.conv2 = HeteroConv({one: SAGEConv(hidden, out) for one in RELATIONS}, aggr="mean")

    def forward(self, x_dict: Tensors, edge_index_dict: dict[Relation, torch.Tensor]) -> Tensors:
        """Return node type -> [N, out]."""
        x_dict = self.conv1(x_dict, edge_index_dict)
        x_dict = {name: x.relu() for name, x in x_dict.items()}
        embeddings: Tensors = self.conv2(x_dict, edge_index_dict)
        return embeddings
