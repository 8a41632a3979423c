"""Every convolution that export knows as a whole, with options that are not the defaults."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.models.dgl_interop import load_dgl, why_no_dgl
from embertide.models.kinds import KNOWN
from embertide.tracing.export import export_module
from embertide.tracing.forward.replacements import BY_NUMBER, BY_RELATION
from embertide.tracing.prove.agreement import TOLERANCE
from tests.support import export_convs
from tests.support.models import shake
from tests.support.pyg import pyg

ROOT = Path(__file__).parents[2]

PYG, DGL = KNOWN["pyg"], KNOWN["dgl"]
PYG_CASES: dict[str, Callable[[], nn.Module]] = {
    "GCNConv": lambda: pyg.GCNConv(5, 3, improved=True, add_self_loops=False, bias=False),
    "SAGEConv": lambda: pyg.SAGEConv(
        5, 3, aggr="max", normalize=True, root_weight=False, project=True, bias=False
    ),
    "GraphConv": lambda: pyg.GraphConv(5, 3, aggr="mean", bias=False),
    "GATConv": lambda: pyg.GATConv(
        5, 3, heads=2, negative_slope=0.4, add_self_loops=False, residual=True, bias=False
    ),
    "GATv2Conv": lambda: pyg.GATv2Conv(
        5, 3, heads=2, concat=False, negative_slope=0.4, residual=True, share_weights=True
    ),
    "TransformerConv": lambda: pyg.TransformerConv(
        5, 3, heads=2, concat=False, beta=True, bias=False
    ),
    "AGNNConv": lambda: pyg.AGNNConv(add_self_loops=False),
    "APPNP": lambda: pyg.APPNP(2, 0.3, add_self_loops=False),
    "SGConv": lambda: pyg.SGConv(5, 3, K=2, add_self_loops=False, bias=False),
    "SSGConv": lambda: pyg.SSGConv(5, 3, 0.3, K=2, add_self_loops=False),
    "LGConv": lambda: pyg.LGConv(normalize=False),
    "TAGConv": lambda: pyg.TAGConv(5, 3, K=2, normalize=False, bias=False),
    "ChebConv": lambda: pyg.ChebConv(5, 3, K=3, normalization="rw", bias=False),
    "ARMAConv": lambda: pyg.ARMAConv(5, 3, 2, 2, act=nn.ELU(0.7), bias=False),
    "GCN2Conv": lambda: pyg.GCN2Conv(5, 0.3, theta=0.4, layer=2, shared_weights=False),
    "LEConv": lambda: pyg.LEConv(5, 3, bias=False),
    "FAConv": lambda: pyg.FAConv(5, eps=0.3, add_self_loops=False),
    "PNAConv": lambda: pyg.PNAConv(
        6, 4, ["mean", "std", "max"], ["identity", "attenuation"], torch.tensor([0, 3, 5, 2]),
        towers=2, divide_input=True, pre_layers=2, act="elu", act_kwargs={"alpha": 0.7},
    ),
}  # fmt: skip

DGL_CASES: dict[str, Callable[[Any], nn.Module]] = {
    "GraphConv": lambda c: c.GraphConv(5, 3, norm="right", bias=False, activation=torch.tanh),
    "SAGEConv": lambda c: c.SAGEConv(
        5, 3, "gcn", bias=False, norm=nn.LayerNorm(3), activation=nn.ELU()
    ),
    "GATConv": lambda c: c.GATConv(5, 3, 2, negative_slope=0.4, residual=True, bias=False),
    "GATv2Conv": lambda c: c.GATv2Conv(5, 3, 2, negative_slope=0.4, share_weights=True),
    "EdgeGATConv": lambda c: c.EdgeGATConv(
        5, 3, 3, 2, negative_slope=0.4, residual=False, bias=False
    ),
    "DotGatConv": lambda c: c.DotGatConv(5, 3, 2),
    "AGNNConv": lambda c: c.AGNNConv(),
    "APPNPConv": lambda c: c.APPNPConv(2, 0.3),
    "SGConv": lambda c: c.SGConv(5, 3, k=2, bias=False, cached=True),
    "PNAConv": lambda c: c.PNAConv(
        6, 4, ["mean", "max", "std"], ["identity", "attenuation"], 2.5, num_towers=2
    ),
    "TAGConv": lambda c: c.TAGConv(5, 3, k=2, bias=False, activation=torch.relu),
    "ChebConv": lambda c: c.ChebConv(5, 3, 3, bias=False, activation=torch.relu),
    "GCN2Conv": lambda c: c.GCN2Conv(5, 2, alpha=0.3, lambda_=0.4, bias=False),
}


class One(nn.Module):
    """A module around one convolution, given all that it takes."""

    def __init__(self, conv: nn.Module, weight: str, earlier: str) -> None:
        super().__init__()
        self.conv, self.weight, self.earlier = conv, weight, earlier

    def more(self, x: torch.Tensor, edge_weight: torch.Tensor | None) -> dict[str, Any]:
        weight = {self.weight: edge_weight} if self.weight else {}
        return weight | ({self.earlier: x} if self.earlier else {})


class OnPyg(One):
    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x=x, edge_index=edge_index, **self.more(x, edge_weight))


class OnDgl(One):
    def forward(self, g, x):
        # DGL's ChebConv asks for the largest eigenvalue where it is not given.
        given = {"lambda_max": [2.0]} if hasattr(self.conv, "linear") else {}
        weight = g.edata["w"] if self.weight and not hasattr(self.conv, "norm") else None
        if hasattr(self.conv, "fc_edge"):
            given = {"edge_feat": g.edata["feat"]}
        return self.conv(g, x, **given, **self.more(x, weight)).flatten(1)


@pytest.mark.parametrize("name", PYG_CASES)
def test_options_of_pyg(name: str) -> None:
    conv, module = PYG[name], PYG_CASES[name]()
    # FAConv demands weights where it does not normalise, and only there.
    weight = "" if name == "FAConv" else conv.weight
    width = getattr(module, "in_channels", 5)
    done = export_module(shake(OnPyg(module, weight, conv.earlier)), width=width)
    assert done.proof.largest_error <= TOLERANCE
    assert [layer.kind for layer in done.exported.layers] == [name]


@pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")
@pytest.mark.parametrize("name", DGL_CASES)
def test_options_of_dgl(name: str) -> None:
    conv = DGL[name]
    module = DGL_CASES[name](load_dgl().nn.pytorch)
    width = getattr(module, "in_size", 5)
    done = export_module(shake(OnDgl(module, conv.weight, conv.earlier)), width=width)
    assert done.proof.largest_error <= TOLERANCE
    assert [layer.kind for layer in done.exported.layers] == [name]


class Edged(nn.Module):
    """A module around one convolution that may read features of edges."""

    def __init__(self, conv: nn.Module, *, edges: bool) -> None:
        super().__init__()
        self.conv, self.edges = conv, edges


class EdgedPyg(Edged):
    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, *([edge_attr] if self.edges else []))


class EdgedDgl(Edged):
    def forward(self, g, x, efeat):
        more = {"eig_vec": x[:, :2]} if isinstance(self.conv, load_dgl().nn.DGNConv) else {}
        return self.conv(g, x, *([efeat] if self.edges else []), **more)


@pytest.mark.parametrize("name", export_convs.PYG)
def test_messages_of_pyg(name: str) -> None:
    module = EdgedPyg(export_convs.PYG[name](pyg), edges=name not in export_convs.WITHOUT_EDGES)
    check_traced(name, module, 3)


@pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")
@pytest.mark.parametrize("name", export_convs.DGL)
def test_messages_of_dgl(name: str) -> None:
    made = export_convs.DGL[name](load_dgl().nn.pytorch)
    module = EdgedDgl(made, edges=name not in export_convs.WITHOUT_EDGES)
    # DGL's GINEConv adds features of edges to those of nodes.
    check_traced(name, module, 5 if name == "GINEConv" else 3)


def check_traced(name: str, module: Edged, columns: int) -> None:
    width = getattr(module.conv, "in_size", 5)
    done = export_module(shake(module), width=width, edge_features=columns)
    assert done.proof.largest_error <= TOLERANCE
    assert [layer.kind for layer in done.exported.layers if layer.graph] == [name]
    read = done.exported.program.edge_columns()
    assert read == ({"": columns} if module.edges else {})


def test_every_entry_has_a_case_and_is_in_the_document() -> None:
    assert set(PYG_CASES) == set(PYG)
    assert set(DGL_CASES) == set(DGL)
    text = " ".join((ROOT / "docs" / "export.md").read_text().split())
    respelled = re.search(r"relation by relation: (.*?)\. ", text)
    assert respelled is not None
    assert respelled[1].split(", ") == [name for _, name in BY_RELATION]
    numbered = re.search(r"given as numbers\*\*, (.*?) of PyG, (.*?) of DGL\. ", text)
    assert numbered is not None
    for package, names in zip(("torch_geometric", "dgl"), numbered.groups(), strict=True):
        assert names.split(", ") == [name for one, name in BY_NUMBER if one == package]


AGGREGATORS: dict[str, dict[str, Any]] = {
    "side by side": {"aggr": ["mean", "max"]},
    "joined": {"aggr": ["std", "softmax"], "aggr_kwargs": {"mode": "max"}},
    "projected": {
        "aggr": ["mean", "min"],
        "aggr_kwargs": {"mode": "proj", "mode_kwargs": {"in_channels": 5, "out_channels": 5}},
    },
    "softmax": {"aggr": "softmax", "aggr_kwargs": {"learn": True, "channels": 5}},
    "power mean": {"aggr": "powermean", "aggr_kwargs": {"p": 2.0}},
}


@pytest.mark.parametrize("name", AGGREGATORS)
def test_aggregators_of_pyg(name: str) -> None:
    done = export_module(shake(OnPyg(pyg.SAGEConv(5, 3, **AGGREGATORS[name]), "", "")), width=5)
    assert done.proof.largest_error <= TOLERANCE
    assert [layer.kind for layer in done.exported.layers] == ["SAGEConv"]


@pytest.mark.parametrize("aggr", ["lstm", "median", "mul"])
def test_aggregators_that_no_step_has(aggr: str) -> None:
    kwargs = {"in_channels": 5, "out_channels": 5} if aggr == "lstm" else {}
    conv = pyg.SAGEConv(5, 3, aggr=aggr, aggr_kwargs=kwargs)
    with pytest.raises(ModelError, match=r"conv \(SAGEConv\) aggregates by \w+; known are sum, "):
        export_module(OnPyg(conv, "", ""), width=5)
