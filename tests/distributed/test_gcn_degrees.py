"""GCN's symmetric norm takes a source's degree from the whole graph.

A worker sees a one-hop block: the in-edges of its own rows. Out-degrees counted there are too
small, and layer-wise inference that uses them is wrong without any error message.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embertide.steps import Aggregate, Linear, Program
from tests.support.exact import assert_exact
from tests.support.ranks import on_grid
from tests.support.tasks import embed_all
from tests.support.world import NODES, make_features, make_graph

pytestmark = pytest.mark.distributed

WIDTH = 6
GRAPH = make_graph()


def symmetric(counted: np.ndarray) -> np.ndarray:
    """D_in^-1/2 A D_out^-1/2 X in plain dense float64; D_out counts the edges ``counted``."""
    adjacency = np.zeros((NODES, NODES))
    np.add.at(adjacency, (GRAPH.dst, GRAPH.src), 1.0)
    into = np.maximum(adjacency.sum(1), 1)
    out = np.maximum(np.bincount(GRAPH.src[counted], minlength=NODES), 1)
    scaled = make_features(WIDTH).double().numpy() / np.sqrt(out)[:, None]
    return adjacency @ scaled / np.sqrt(into)[:, None]


@pytest.mark.parametrize("first", ["aggregate", "product"])
def test_degrees_come_from_the_whole_graph(first: str) -> None:
    params = {"w": torch.eye(WIDTH)}
    aggregate = {"out": "out", "layer": 0, "norm": "both"}
    steps = (
        (Aggregate(x="x", **aggregate),)
        if first == "aggregate"
        else (Linear(out="h", layer=0, x="x", weight="w"), Aggregate(x="h", **aggregate))
    )
    widths = dict.fromkeys(("x", "h", "out"), WIDTH)
    program = Program(steps=steps, params=params, widths=widths, layers=1)
    key = ("directed", False)
    for grid in ((2, 1), (2, 2)):
        answers = on_grid(*grid, embed_all, {key: GRAPH}, [(program, *key)])
        found = np.concatenate([parts[0] for parts in answers])
        assert_exact(found, symmetric(GRAPH.dst >= 0))
        # What the first partition's one-hop block would have given differs, and by a lot.
        cut = sum(len(parts[0]) for parts in answers[: grid[1]])
        wrong = symmetric(GRAPH.dst < cut)
        assert np.abs(wrong - found)[:cut].max() > 0.1
