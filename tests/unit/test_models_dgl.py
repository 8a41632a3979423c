"""Plans read from DGL's own modules give what those modules give on the whole graph."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

from embertide.models.dgl_interop import load_dgl, why_no_dgl
from embertide.models.read import read_model
from embertide.models.synth import Conv, write_random_model
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

pytestmark = pytest.mark.skipif(
    why_no_dgl() != "",
    reason=f"DGL itself is not compared: {why_no_dgl()}; this is Python {sys.version.split()[0]}",
)

WIDE, NARROW = (5, 12), (12, 4)


@pytest.fixture(scope="module")
def dgl() -> Any:
    return load_dgl()


def dgl_graph(dgl: Any, kind: str) -> Any:
    graph = GRAPHS[kind]
    return dgl.graph((graph.src, graph.dst), num_nodes=NODES)


@dataclass(frozen=True)
class Case:
    """One convolution: how the user makes it and how model.yaml describes it."""

    make: Callable[[Any], nn.Module]
    options: str
    weights: bool = False  # whether stored edge weights are passed to the module
    ignored: bool = False  # whether the graph has edge weights that the module is not given
    after: Callable[[torch.Tensor], torch.Tensor] = lambda out: out.flatten(1)
    on_grids: bool = True  # False: differs from others in how it is read, not in what is computed


def gcn(norm: str, size: tuple[int, int], **more: Any) -> Callable[[Any], nn.Module]:
    return lambda c: c.GraphConv(*size, norm=norm, allow_zero_in_degree=True, **more)


def sage(kind: str, size: tuple[int, int], **more: Any) -> Callable[[Any], nn.Module]:
    return lambda c: c.SAGEConv(*size, kind, **more)


def attention(name: str, size: tuple[int, int, int], **more: Any) -> Callable[[Any], nn.Module]:
    return lambda c: getattr(c, name)(*size, allow_zero_in_degree=True, **more)


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 9, bias=False), nn.LayerNorm(9), nn.Tanh(), nn.Dropout(), nn.Linear(9, 4)
    )


def mean_heads(out: torch.Tensor) -> torch.Tensor:
    return out.mean(1)


# Of both orders of product and aggregation, grids see one with edge weights and one without.
CASES = {
    **{
        f"gcn-{norm}-{'wide' if size == WIDE else 'narrow'}{'-weighted' * weights}": Case(
            gcn(norm, size),
            f"conv: gcn, norm: {norm}",
            weights,
            on_grids=weights == (size == NARROW),
        )
        for norm in ("both", "right", "left", "none")
        for size in (WIDE, NARROW)
        for weights in (False, True)
    },
    "gcn-default": Case(gcn("both", NARROW), "conv: gcn", True, on_grids=False),
    "gcn-ignores-weights": Case(
        gcn("both", NARROW), "conv: gcn, edge_weight: false", ignored=True, on_grids=False
    ),
    "gcn-no-bias": Case(gcn("both", NARROW, bias=False), "conv: gcn, bias: false", on_grids=False),
    "gcn-no-bias-wide": Case(
        gcn("both", WIDE, bias=False), "conv: gcn, bias: false", on_grids=False
    ),
    "gcn-no-weight": Case(gcn("both", (5, 5), weight=False), "conv: gcn, weight: false"),
    **{
        f"sage-{kind}-{'wide' if size == WIDE else 'narrow'}{'-weighted' * weights}": Case(
            sage(kind, size),
            f"conv: sage, aggregator_type: {kind}",
            weights,
            on_grids=weights == (size == NARROW),
        )
        for kind in ("mean", "gcn", "pool")
        for size in (WIDE, NARROW)
        for weights in (False, True)
    },
    "sage-infer-mean": Case(sage("mean", NARROW), "conv: sage", on_grids=False),
    "sage-infer-gcn": Case(sage("gcn", WIDE), "conv: sage", on_grids=False),
    "sage-infer-pool": Case(sage("pool", WIDE), "conv: sage", on_grids=False),
    "sage-gcn-no-bias": Case(
        sage("gcn", WIDE, bias=False), "conv: sage, bias: false", on_grids=False
    ),
    "sage-mean-no-bias": Case(
        sage("mean", WIDE, bias=False), "conv: sage, bias: false", on_grids=False
    ),
    "gat": Case(attention("GATConv", (5, 4, 3)), "conv: gat"),
    "gat-one-head": Case(
        attention("GATConv", (5, 4, 1)), "conv: gat, num_heads: 1", on_grids=False
    ),
    "gat-average": Case(
        attention("GATConv", (5, 4, 3)), "conv: gat, concat: false", after=mean_heads
    ),
    "gat-slope": Case(
        attention("GATConv", (5, 4, 3), negative_slope=0.7),
        "conv: gat, negative_slope: 0.7",
        on_grids=False,
    ),
    "gat-residual-projected": Case(
        attention("GATConv", (5, 4, 3), residual=True), "conv: gat, residual: true"
    ),
    "gat-residual-projected-no-bias": Case(
        attention("GATConv", (5, 4, 3), residual=True, bias=False),
        "conv: gat, residual: true, bias: false",
        on_grids=False,
    ),
    "gat-residual-same": Case(
        attention("GATConv", (12, 4, 3), residual=True), "conv: gat, residual: true"
    ),
    "gat-no-bias": Case(
        attention("GATConv", (5, 4, 3), bias=False), "conv: gat, bias: false", on_grids=False
    ),
    "gat-weighted": Case(attention("GATConv", (5, 4, 3)), "conv: gat, edge_weight: true", True),
    "gat-average-behind-activation": Case(
        attention("GATConv", (5, 4, 3), activation=functional.elu),
        "conv: gat, concat: false, activation: elu, order: [activation, average]",
        after=mean_heads,
    ),
    "gatv2": Case(attention("GATv2Conv", (5, 4, 3)), "conv: gatv2, num_heads: 3"),
    "gatv2-average": Case(
        attention("GATv2Conv", (5, 4, 3)), "conv: gatv2, concat: false", after=mean_heads
    ),
    "gatv2-shared": Case(
        attention("GATv2Conv", (5, 4, 3), share_weights=True),
        "conv: gatv2, share_weights: true",
        on_grids=False,
    ),
    "gatv2-slope-no-bias": Case(
        attention("GATv2Conv", (5, 4, 3), negative_slope=0.6, bias=False),
        "conv: gatv2, negative_slope: 0.6, bias: false",
        on_grids=False,
    ),
    "gatv2-residual-projected": Case(
        attention("GATv2Conv", (5, 4, 3), residual=True), "conv: gatv2, residual: true"
    ),
    "gatv2-residual-same": Case(
        attention("GATv2Conv", (12, 4, 3), residual=True), "conv: gatv2, residual: true"
    ),
    "dotgat": Case(attention("DotGatConv", (5, 4, 3)), "conv: dotgat, num_heads: 3"),
    "dotgat-average": Case(
        attention("DotGatConv", (5, 4, 3)),
        "conv: dotgat, num_heads: 3, concat: false",
        after=mean_heads,
    ),
    **{
        f"gin-{kind}{'-weighted' * weights}": Case(
            lambda c, kind=kind: c.GINConv(nn.Linear(5, 4), kind, init_eps=0.3),
            f"conv: gin, aggregator_type: {kind}",
            weights,
            on_grids=kind != "mean",
        )
        for kind in ("sum", "mean", "max")
        for weights in (False, True)
    },
    "gin-mlp": Case(
        lambda c: c.GINConv(mlp(), "sum", learn_eps=True, activation=torch.relu),
        "conv: gin, activation: relu,"
        " mlp: [{linear: '0', bias: false}, layer_norm, tanh, {linear: '4'}]",
    ),
}


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", CASES)
def test_one_layer(dgl: Any, name: str, kind: str) -> None:
    case, graph = CASES[name], GRAPHS[kind]
    module = shake(nn.ModuleDict({"conv": case.make(dgl.nn.pytorch)}))
    program = program_of(f"library: dgl\nlayers: [{{{case.options}}}]", module)
    x = features(program.input_width)
    more = {"edge_weight": graph.weight.double()} if case.weights else {}
    with torch.no_grad():
        expected = case.after(module.double()["conv"](dgl_graph(dgl, kind), x, **more))
    weighted = case.weights or case.ignored
    assert_same(run_program(program, graph, x, weighted=weighted), expected)


class Stack(nn.Module):
    """GAT, then GCN with norms, then SAGE with links to earlier layers."""

    def __init__(self, convs: Any) -> None:
        super().__init__()
        zero = {"allow_zero_in_degree": True}
        self.gat1 = convs.GATConv(7, 4, 3, residual=True, activation=functional.elu, **zero)
        self.gcn2 = convs.GraphConv(12, 12, norm="right", **zero)
        self.sage3 = convs.SAGEConv(12, 6, "mean", norm=nn.LayerNorm(6), activation=torch.tanh)
        self.norm2 = nn.LayerNorm(12, eps=1e-3)
        self.prelu = nn.PReLU(12)
        self.link = nn.Linear(12, 6)
        self.back = nn.Linear(7, 6, bias=False)

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        one = self.gat1(graph, x).flatten(1)
        two = one + self.prelu(self.norm2(self.gcn2(graph, one)))
        return self.sage3(graph, two) + self.link(one)


STACK = """
library: dgl
ignore: [back.*]
layers:
  - {conv: gat, residual: true, activation: elu}
  - conv: gcn
    norm: right
    layer_norm: {eps: 0.001, prefix: norm2}
    activation: {kind: prelu, prefix: prelu}
    skip: true
  - conv: sage
    activation: tanh
    layer_norm: true
    skip: {from: 0, linear: link}
    order: [activation, layer_norm, skip]
"""


@pytest.mark.parametrize("kind", GRAPHS)
def test_stack_with_norms_and_links(dgl: Any, kind: str) -> None:
    module = shake(Stack(dgl.nn.pytorch))
    program = program_of(STACK, module)
    x = features(7)
    with torch.no_grad():
        expected = module.double()(dgl_graph(dgl, kind), x)
    assert program.output_width == 6
    assert_same(run_program(program, GRAPHS[kind], x, weighted=False), expected)


OLDER = {
    "sage": (sage("mean", WIDE), "conv: sage", {"fc_self.bias": "bias"}),
    "gat-residual": (
        attention("GATConv", (5, 4, 3), residual=True),
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
