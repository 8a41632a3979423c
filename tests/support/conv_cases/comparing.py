"""A whole model on a graph, as its module and as the program read from its ``model.yaml``."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from embertide.models.layer import Library
from embertide.program.steps import Program
from tests.support.conv_cases.case import Example
from tests.support.dgl_library import dgl
from tests.support.models import (
    GRAPHS,
    NODES,
    assert_same,
    features,
    program_of,
    run_program,
    shake,
)


def edges_of(library: Library, kind: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A graph of `GRAPHS` as modules of a library take it."""
    graph = GRAPHS[kind]
    if library == "pyg":
        return torch.stack([graph.src, graph.dst])
    # APPNPConv makes weights of one, of the default type.
    monkeypatch.setattr(torch, "ones", partial(torch.ones, dtype=torch.float64))
    return dgl.graph((graph.src, graph.dst), num_nodes=NODES)


def assert_exact_example(
    library: Library, example: Example, kind: str, monkeypatch: pytest.MonkeyPatch
) -> Program:
    """The program gives what the module gives, with and without edge weights; returns it."""
    graph, module = GRAPHS[kind], shake(example.make())
    program = program_of(example.yaml, module)
    x, edges = features(program.input_width), edges_of(library, kind, monkeypatch)
    own = graph.features(example.features)
    carried = () if own is None else (own.double(),)
    arguments = (edges, x, *carried) if library == "dgl" else (x, edges, *carried)
    for weighted in {False, example.weighted}:
        more = {"edge_weight": graph.weight.double()} if weighted else {}
        with torch.no_grad():
            expected = module.double()(*arguments, **more)
        found = run_program(program, graph, x, weighted=weighted)
        assert_same(found, expected, example.tolerance)
    return program
