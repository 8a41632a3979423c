"""Plans read from DGL's own modules give what those modules give on the whole graph."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

from embertide.models.dgl_interop import load_dgl
from embertide.models.read import read_model
from embertide.models.synth import Conv, write_random_model
from tests.support.conv_cases.comparing import assert_exact_example
from tests.support.conv_cases.models import DGL_STACK
from tests.support.models import (
    GRAPHS,
    NODES,
    Files,
    assert_same,
    features,
    program_of,
    run_program,
    shake,
)

pytestmark = pytest.mark.dgl


@pytest.fixture(scope="module")
def dgl() -> Any:
    return load_dgl()


def dgl_graph(dgl: Any, kind: str) -> Any:
    graph = GRAPHS[kind]
    return dgl.graph((graph.src, graph.dst), num_nodes=NODES)


@pytest.mark.parametrize("kind", GRAPHS)
def test_stack_with_norms_and_links(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = assert_exact_example("dgl", DGL_STACK, kind, monkeypatch)
    assert program.output_width == 6


OLDER = {
    "sage": (lambda c: c.SAGEConv(5, 12, "mean"), "conv: sage", {"fc_self.bias": "bias"}),
    "gat-residual": (
        lambda c: c.GATConv(5, 4, 3, residual=True, allow_zero_in_degree=True),
        "conv: gat, residual: true",
        {"res_fc.bias": "bias"},
    ),
}


@pytest.mark.parametrize("name", OLDER)
def test_places_of_the_bias_before_dgl_1(dgl: Any, name: str) -> None:
    make, options, renamed = OLDER[name]
    module = shake(make(dgl.nn.pytorch))
    tensors = {renamed.get(key, key): value for key, value in module.state_dict().items()}
    program = program_of(f"library: dgl\nlayers: [{{{options}}}]", tensors)
    x = features(5)
    with torch.no_grad():
        expected = module.double()(dgl_graph(dgl, "directed"), x).flatten(1)
    assert_same(run_program(program, GRAPHS["directed"], x, weighted=False), expected)


@pytest.mark.parametrize("conv", get_args(Conv))
def test_random_models_load_into_dgl(dgl: Any, conv: Conv) -> None:
    files, columns_of_edges = Files(), 4 if conv == "edge_gat" else 0
    write_random_model(
        files,
        "file:///r",
        conv,
        layers=2,
        width_in=5,
        hidden=12,
        out=6,
        heads=3,
        edge_features=columns_of_edges,
        seed=8,
    )
    tensors = safetensors.torch.load(files.read("file:///r/weights.safetensors"))
    c, zero = dgl.nn.pytorch, {"allow_zero_in_degree": True}

    def make(columns: int, rows: int) -> nn.Module:
        function = nn.Sequential(nn.Linear(columns, rows), nn.ReLU(), nn.Linear(rows, rows))
        return {
            "gcn": lambda: c.GraphConv(columns, rows, **zero),
            "sage": lambda: c.SAGEConv(columns, rows, "mean"),
            "gat": lambda: c.GATConv(columns, rows // 3, 3, **zero),
            "gatv2": lambda: c.GATv2Conv(columns, rows // 3, 3, **zero),
            "gin": lambda: c.GINConv(function),
            "edge_gat": lambda: c.EdgeGATConv(columns, columns_of_edges, rows // 3, 3, **zero),
            "dotgat": lambda: c.DotGatConv(columns, rows // 3, 3, **zero),
            "sg": lambda: c.SGConv(columns, rows, k=2, **zero),
            "tag": lambda: c.TAGConv(columns, rows),
        }[conv]()

    module = nn.ModuleDict({"layers": nn.ModuleList([make(5, 12), make(12, 6)])})
    module.load_state_dict(tensors, strict=True)
    program = read_model(files, "file:///r")
    graph, x = dgl_graph(dgl, "directed"), features(5)
    act = functional.elu if conv in ("gat", "gatv2", "dotgat", "edge_gat") else torch.relu
    one, two = module.double()["layers"]
    own = GRAPHS["directed"].features(columns_of_edges)
    given = () if own is None else (own.double(),)
    with torch.no_grad():
        expected = two(graph, act(one(graph, x, *given).flatten(1)), *given).flatten(1)
    assert_same(run_program(program, GRAPHS["directed"], x, weighted=False), expected)
