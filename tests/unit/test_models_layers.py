"""Layers without edges, propagation without weights and JumpingKnowledge, against the libraries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from embertide.models.dgl_interop import load_dgl, why_no_dgl
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
from tests.support.pyg import pyg

EXACT, FOLDED = 1e-9, 1e-6
"""Tolerances; a folded batch norm is stored in float32."""


@dataclass(frozen=True)
class Case:
    """A whole model and its description; ``weighted`` passes it stored edge weights."""

    make: Callable[[], nn.Module]
    layers: str
    weighted: bool = False
    more: str = ""
    tolerance: float = EXACT


class Conv(nn.Module):
    """One module of PyG as a model."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: torch.Tensor, edges: torch.Tensor, **weights: Any) -> torch.Tensor:
        return self.conv(x, edges, **weights)


class Towers(nn.Module):
    """An encoder, two convolutions, JumpingKnowledge with the features, a linear head."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.encoder = nn.Linear(5, 8)
        self.norm = nn.BatchNorm1d(8)
        self.first, self.second = pyg.SAGEConv(8, 8), pyg.SAGEConv(8, 8)
        self.join = pyg.JumpingKnowledge(mode)
        self.hidden = nn.Linear(29 if mode == "cat" else 8, 6, bias=False)
        self.head = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        start = self.norm(self.encoder(x).relu())
        one = self.first(start, edges).relu()
        two = self.second(one, edges)
        more = [x, start] if self.join.mode == "cat" else []
        return self.head(self.hidden(self.join([*more, one, two])).tanh())


TOWERS = (
    "{{conv: linear, prefix: encoder, activation: relu, batch_norm: {{prefix: norm}},"
    " order: [activation, batch_norm]}}, {{conv: sage, prefix: first, activation: relu}},"
    " {{conv: sage, prefix: second}},"
    " {{conv: jumping_knowledge, {mode}}},"
    " {{conv: linear, prefix: hidden, bias: false, activation: tanh}},"
    " {{conv: linear, prefix: head}}"
)
SGC = "{conv: propagate, K: 3}, {conv: linear, prefix: conv.lin}"
INNER = "{conv: gcn, activation: relu}"
JK = ", {{conv: jumping_knowledge, mode: {}}}, {{conv: linear, prefix: lin}}"

PYG = {
    "sgc": Case(lambda: Conv(pyg.SGConv(5, 4, K=3)), SGC),
    "sgc-weighted": Case(lambda: Conv(pyg.SGConv(5, 4, K=3)), SGC, weighted=True),
    "sgc-no-loops": Case(
        lambda: Conv(pyg.SGConv(5, 4, K=2, add_self_loops=False)),
        "{conv: propagate, K: 2, add_self_loops: false}, {conv: linear, prefix: conv.lin}",
    ),
    "appnp": Case(
        lambda: Conv(pyg.APPNP(K=4, alpha=0.15)),
        "{conv: propagate, K: 4, alpha: 0.15}",
        more="input_width: 5\n",
    ),
    "appnp-weighted-plain": Case(
        lambda: Conv(pyg.APPNP(K=2, alpha=0.15, normalize=False)),
        "{conv: propagate, K: 2, alpha: 0.15, normalize: false}",
        weighted=True,
        more="input_width: 5\n",
    ),
    **{
        f"jk-{mode}": Case(
            lambda mode=mode: pyg.GCN(5, 8, 3, 4, jk=mode),
            f"{INNER}, {INNER}, {INNER}" + JK.format(mode),
            weighted=True,
        )
        for mode in ("cat", "max")
    },
    "jk-lstm": Case(
        lambda: pyg.GCN(5, 8, 3, 4, jk="lstm"),
        f"{INNER}, {INNER}, {INNER}" + JK.format("lstm, prefix: jk"),
        weighted=True,
    ),
    "jk-last": Case(
        lambda: pyg.GCN(5, 8, 2, 4, jk="last", norm="batch_norm"),
        ", ".join(["{conv: gcn, batch_norm: true, activation: relu}"] * 2)
        + ", {conv: linear, prefix: lin}",
        tolerance=FOLDED,
    ),
    "towers-cat": Case(
        lambda: Towers("cat"),
        TOWERS.format(mode="mode: cat, layers: [input, 0, 1, 2]"),
        tolerance=FOLDED,
    ),
    "towers-max": Case(lambda: Towers("max"), TOWERS.format(mode="mode: max"), tolerance=FOLDED),
}


def pyg_answer(
    module: nn.Module, graph: TensorGraph, x: torch.Tensor, weighted: bool
) -> torch.Tensor:
    more = {"edge_weight": graph.weight.double()} if weighted else {}
    with torch.no_grad():
        return module.double()(x, torch.stack([graph.src, graph.dst]), **more)


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", PYG)
def test_pyg(name: str, kind: str) -> None:
    case, graph, x = PYG[name], GRAPHS[kind], features(5)
    module = shake(case.make())
    program = program_of(f"library: pyg\n{case.more}layers: [{case.layers}]", module)
    assert (program.input_width, len(program.outputs)) == (5, case.layers.count("conv: "))
    expected = pyg_answer(module, graph, x, case.weighted)
    found = run_program(program, graph, x, weighted=case.weighted)
    assert_same(found, expected, case.tolerance)


def test_only_layers_that_read_edges_have_a_layer_graph() -> None:
    program = program_of(
        f"library: pyg\nlayers: [{TOWERS.format(mode='mode: max')}]", shake(Towers("max"))
    )
    assert program.layers == 2
    assert [step.layer for step in program.steps] == sorted(step.layer for step in program.steps)
    assert [len(program.outputs), program.outputs[-1]] == [6, program.output]


class Jumping(nn.Module):
    """DGL's example of JumpingKnowledge: what is joined is summed over neighbours once more."""

    def __init__(self, dgl: Any, mode: str) -> None:
        super().__init__()
        convs = dgl.nn.pytorch
        sizes = [(5, 8), (8, 8)]
        self.layers = nn.ModuleList(
            convs.GraphConv(*size, allow_zero_in_degree=True) for size in sizes
        )
        self.jump = dgl.nn.JumpingKnowledge(mode, 8, 2)
        self.output = nn.Linear(16 if mode == "cat" else 8, 4)
        self._sum = dgl.function.copy_u("h", "m"), dgl.function.sum("m", "h")

    def forward(self, graph: Any, x: torch.Tensor) -> torch.Tensor:
        found = []
        for layer in self.layers:
            x = layer(graph, x).relu()
            found.append(x)
        graph.ndata["h"] = self.jump(found)
        graph.update_all(*self._sum)
        return self.output(graph.ndata["h"])


DGL: dict[str, tuple[Callable[[Any], nn.Module], str]] = {
    "sgc": (
        lambda dgl: nn.ModuleDict({"conv": dgl.nn.SGConv(5, 4, k=3, allow_zero_in_degree=True)}),
        "layers: [{conv: propagate, k: 3, norm: in_degree}, {conv: linear, prefix: conv.fc}]",
    ),
    "appnp": (
        lambda dgl: nn.ModuleDict({"conv": dgl.nn.APPNPConv(k=4, alpha=0.15)}),
        "input_width: 5\nlayers: [{conv: propagate, k: 4, alpha: 0.15, norm: both}]",
    ),
    **{
        f"jk-{mode}": (
            lambda dgl, mode=mode: nn.ModuleDict({"conv": Jumping(dgl, mode)}),
            f"layers: [{INNER}, {INNER}, {{conv: jumping_knowledge, mode: {mode}{more}}},"
            " {conv: propagate, k: 1, norm: none}, {conv: linear, prefix: conv.output}]",
        )
        for mode, more in (("cat", ""), ("max", ""), ("lstm", ", prefix: conv.jump"))
    },
}


@pytest.mark.skipif(
    why_no_dgl() != "",
    reason=f"DGL itself is not compared: {why_no_dgl()}; this is Python {sys.version.split()[0]}",
)
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", DGL)
def test_dgl(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dgl, graph, x = load_dgl(), GRAPHS[kind], features(5)
    make, text = DGL[name]
    module = shake(make(dgl))
    program = program_of(f"library: dgl\n{text}", module)
    with torch.no_grad():
        whole = dgl.graph((graph.src, graph.dst), num_nodes=NODES)
        # APPNPConv makes weights of one, of the default type.
        monkeypatch.setattr(torch, "ones", partial(torch.ones, dtype=torch.float64))
        expected = module.double()["conv"](whole, x)
    assert_same(run_program(program, graph, x, weighted=False), expected)
