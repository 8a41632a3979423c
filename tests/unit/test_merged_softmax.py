"""A softmax over several kinds of edges, merged from one of each."""

from __future__ import annotations

import torch

from embertide.models.reference import run_reference
from tests.support.models import GRAPHS, assert_same, features
from tests.support.step_cases import step_cases


def test_merged_softmaxes_are_one_over_all_edges() -> None:
    graph, x = GRAPHS["directed"], features(10)
    found = run_reference(step_cases()["merged softmax"], [graph.layer(weighted=False)], x)
    every, other = torch.arange(len(x)), graph.src != graph.dst
    src = torch.cat([graph.src, graph.src[other], every])
    dst = torch.cat([graph.dst, graph.dst[other], every])
    expected = torch.zeros(len(x), 3, 2, dtype=torch.float64)
    for node in every.tolist():
        sources = x[src[dst == node]]
        share = (sources * x[node])[:, :3].softmax(0)
        expected[node] = (share[:, :, None] * sources[:, :6].reshape(-1, 3, 2)).sum(0)
    assert_same(found, expected.flatten(1))
