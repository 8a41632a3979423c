"""The random graphs that a module is traced and proved on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RandomGraph:
    """A small directed graph with what real graphs have: hubs, loops, duplicates, lone nodes.

    Attributes:
        src, dst: [E] the ends of each edge.
        weight: [E] positive, float64.
        x: [N, D] features, float64.
    """

    src: Tensor
    dst: Tensor
    weight: Tensor
    x: Tensor

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.x)

    @property
    def edge_index(self) -> Tensor:
        """[2, E], as PyG has it."""
        return torch.stack([self.src, self.dst])


def random_graph(nodes: int, width: int, seed: int) -> RandomGraph:
    """A graph whose last nodes have no edges, and some others no in-edges.

    Args:
        width: columns of the features.
    """
    g = torch.Generator().manual_seed(seed)
    ends, others = nodes - nodes // 8, nodes - nodes // 4
    src = torch.randint(0, ends, (4 * nodes,), generator=g)
    dst = torch.randint(0, others, (4 * nodes,), generator=g)
    plain = src != dst
    hub, loops = torch.arange(1, nodes // 2), torch.arange(0, others, 3)
    src = torch.cat([src[plain], hub, torch.zeros_like(hub), src[plain][:9], loops])
    dst = torch.cat([dst[plain], torch.zeros_like(hub), hub, dst[plain][:9], loops])
    weight = torch.rand(len(src), generator=g, dtype=torch.float64) + 0.25
    x = torch.randn(nodes, width, generator=g, dtype=torch.float64)
    return RandomGraph(src, dst, weight, x)
