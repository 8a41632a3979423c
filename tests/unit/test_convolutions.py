"""Every convolution gives what its library's own module gives on the whole graph."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from embertide.models.dgl_interop import load_dgl, why_no_dgl
from tests.support import conv_cases_dgl, conv_cases_pyg
from tests.support.models import (
    GRAPHS,
    NODES,
    assert_same,
    features,
    program_of,
    run_program,
    shake,
)
from tests.support.pyg import pyg

GRAPH = GRAPHS["directed"]


@pytest.mark.parametrize("name", conv_cases_pyg.CASES)
def test_pyg(name: str) -> None:
    case = conv_cases_pyg.CASES[name]
    module = shake(case.module(pyg))
    program = program_of(case.text("pyg"), module)
    x = features(program.input_width)
    more = {"edge_weight": GRAPH.weight.double()} if case.weighted else {}
    own = GRAPH.features(case.features)
    with torch.no_grad():
        edges = torch.stack([GRAPH.src, GRAPH.dst])
        given = (edges,) if own is None else (edges, own.double())
        expected = case.forward(module.double()["conv"], x, *given, **more)
    assert_same(run_program(program, GRAPH, x, case.weighted), expected, case.tolerance)


@pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL itself is not compared: {why_no_dgl()}")
@pytest.mark.parametrize("name", conv_cases_dgl.CASES)
def test_dgl(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, dgl = conv_cases_dgl.CASES[name], load_dgl()
    module = shake(case.module(dgl.nn.pytorch))
    program = program_of(case.text("dgl"), module)
    x = features(program.input_width)
    more: dict[str, Any] = {"edge_weight": GRAPH.weight.double()} if case.weighted else {}
    with torch.no_grad():
        whole = dgl.graph((GRAPH.src, GRAPH.dst), num_nodes=NODES)
        # APPNPConv makes weights of one, of the default type.
        monkeypatch.setattr(torch, "ones", partial(torch.ones, dtype=torch.float64))
        own = GRAPH.features(case.features)
        given = (x,) if own is None else (x, own.double())
        expected = case.forward(module.double()["conv"], whole, *given, **more)
    assert_same(run_program(program, GRAPH, x, case.weighted), expected, case.tolerance)
