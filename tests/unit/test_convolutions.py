"""Every convolution gives what its library's own module gives on the whole graph."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from embertide.models.dgl_interop import load_dgl, why_no_dgl
from embertide.models.layer import Library
from tests.support.conv_cases import CASES, library_nn
from tests.support.models import (
    GRAPHS,
    NODES,
    TensorGraph,
    assert_same,
    features,
    program_of,
    run_program,
    shake,
)


def described(library: Library) -> list[str]:
    return [name for name, case in CASES[library].items() if case.layer]


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", described("pyg"))
def test_pyg(name: str, kind: str) -> None:
    graph = GRAPHS[kind]
    compare("pyg", name, graph, lambda x: (x, torch.stack([graph.src, graph.dst])))


@pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL itself is not compared: {why_no_dgl()}")
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", described("dgl"))
def test_dgl(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = GRAPHS[kind]
    whole = load_dgl().graph((graph.src, graph.dst), num_nodes=NODES)
    # APPNPConv makes weights of one, of the default type.
    monkeypatch.setattr(torch, "ones", partial(torch.ones, dtype=torch.float64))
    compare("dgl", name, graph, lambda x: (whole, x))


def compare(library: Library, name: str, graph: TensorGraph, arguments: Any) -> None:
    """A case's program with its module on the whole graph; ``arguments`` are those of features."""
    case = CASES[library][name]
    module = shake(case.module(library_nn(library)))
    program = program_of(case.text(library), module)
    x, own = features(program.input_width), graph.features(case.features)
    more = {"edge_weight": graph.weight.double()} if case.weighted else {}
    given = arguments(x) if own is None else (*arguments(x), own.double())
    with torch.no_grad():
        expected = case.forward(module.double()["conv"], *given, **more)
    found = run_program(program, graph, x, case.weighted or case.weights_unread)
    assert_same(found, expected, case.tolerance)
