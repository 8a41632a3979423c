"""The largest and the smallest of all edges' weights have the same bits on every grid."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from embertide.tracing.export import export_module
from tests.support.models import read_again
from tests.support.ranks import on_grid
from tests.support.tasks import embed_all
from tests.support.world import make_graph

pytestmark = pytest.mark.distributed


class Extremes(nn.Module):
    """Two columns of the largest weight and two of the smallest."""

    def forward(self, x, edge_index, edge_weight):
        rows = x[:, :4] * 0.0
        rows[rows == 0] = 1.0
        largest, smallest = rows[:, :2] * edge_weight.max(), rows[:, 2:] * edge_weight.min()
        return torch.cat([largest, smallest], dim=1)


@pytest.mark.parametrize("grid", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_extremes_have_the_weights_bits(grid: tuple[int, int]) -> None:
    graph = make_graph(weighted=True)
    assert graph.weight is not None
    # Negative ones alone: a node without in-edges has no weight of 0.
    graph.weight[:] = -graph.weight
    program = read_again(export_module(Extremes(), width=5))
    parts = on_grid(*grid, embed_all, {("own", True): graph}, [(program, "own", True)])
    rows = np.concatenate([answers[0] for answers in parts])
    expected = [graph.weight.max()] * 2 + [graph.weight.min()] * 2
    assert np.array_equal(rows, np.tile(np.array(expected, np.float32), (len(rows), 1)))
