"""Convolutions that a convolution's own steps do not say, and what takes their place."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.models.dgl_interop import load_dgl, why_no_dgl
from embertide.tracing.export import Export, export_module
from embertide.tracing.prove.agreement import TOLERANCE
from embertide.tracing.record.graphs import GraphTypes
from tests.support.models import shake
from tests.support.pyg import pyg

needs_dgl = pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")
ONE = GraphTypes({"n": 6}, ("n:a:n", "n:b:n"))
TWO = GraphTypes({"user": 6, "item": 6}, ("user:buys:item", "item:of:user", "user:knows:user"))
BUYS, OF, KNOWS = ("user", "buys", "item"), ("item", "of", "user"), ("user", "knows", "user")


def exported(module: nn.Module, **more: Any) -> Export:
    done = export_module(shake(module), **more)
    assert done.proof.largest_error <= TOLERANCE
    return done


class Pyg(nn.Module):
    def __init__(self, conv: nn.Module, **given: Any) -> None:
        super().__init__()
        self.conv, self.given = conv, given

    def forward(self, x, edge_index, edge_weight=None):
        return self.conv(x, edge_index, edge_weight, **self.given)


def thrice(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=0) * 3.0


@pytest.mark.parametrize("act", [torch.relu, nn.functional.silu, torch.tanh, thrice])
def test_any_function_is_an_activation_of_arma(act: Callable[..., Any]) -> None:
    exported(Pyg(pyg.ARMAConv(5, 3, 2, 2, act=act)), width=5)
    exported(Pyg(pyg.ARMAConv(5, 3, 2, 1, shared_weights=True, act=act, bias=False)), width=5)


@pytest.mark.parametrize("largest", [3.0, torch.tensor(2.5)])
def test_cheb_without_a_normalization_is_told_the_largest_eigenvalue(largest: Any) -> None:
    conv = pyg.ChebConv(5, 3, 3, normalization=None)
    done = exported(Pyg(conv, lambda_max=largest), width=5)
    assert done.proof.weighted == (True, False)


@needs_dgl
@pytest.mark.parametrize("norm", ["none", "right", "both"])
def test_edge_weight_norm(norm: str) -> None:
    c = load_dgl().nn.pytorch

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.conv = c.EdgeWeightNorm(norm), c.GraphConv(5, 3, norm="none")

        def forward(self, g, x):
            return self.conv(g, x, edge_weight=self.norm(g, g.edata["w"]))

    exported(Net(), width=5)


@needs_dgl
def test_egat_refuses_nodes_without_in_edges_but_runs() -> None:
    """It has no option that allows them, so that the proof's graph has none."""
    c = load_dgl().nn.pytorch

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = c.EGATConv(5, 3, 4, 3, 2), c.EGATConv(8, 6, 4, 3, 2)

        def forward(self, g, x, efeat):
            h, e = self.one(g, x, efeat)
            return self.two(g, h.flatten(1), e.flatten(1))[0].mean(1)

    exported(Net(), width=5, edge_features=3)


@needs_dgl
def test_dot_attention_of_a_pair_within_a_type() -> None:
    """DGL has one tensor for both ends, of which the destinations' is the last that is set."""
    c = load_dgl().nn.pytorch

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.lin = c.DotGatConv((5, 4), 3, 2), nn.Linear(5, 4)

        def forward(self, g, x):
            return self.conv(g, (x, self.lin(x))).flatten(1)

    exported(Net(), width=5)


@needs_dgl
def test_dgl_cheb_without_its_largest_eigenvalue_is_refused() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = load_dgl().nn.pytorch.ChebConv(5, 3, 2)

        def forward(self, g, x):
            return self.conv(g, x)

    with pytest.raises(ModelError, match=r"py:\d+: conv \(ChebConv\) .*as lambda_max=\[1.9\]"):
        export_module(shake(Net()), width=5)


@needs_dgl
def test_stacked_relations_of_dgl() -> None:
    sage = load_dgl().nn.pytorch.SAGEConv

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            convs = {name: sage(6, 3, "mean") for name in ("buys", "of", "knows")}
            self.conv = load_dgl().nn.pytorch.HeteroGraphConv(convs, aggregate="stack")

        def forward(self, g, x):
            h = self.conv(g, x)
            return {"user": h["user"], "item": h["item"].max(dim=1).values}

    done = exported(Net(), graph=TWO)
    assert widths(done) == {"user": 6, "item": 3}


def test_relations_of_pyg_that_are_not_aggregated() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            convs = {one: pyg.SAGEConv(6, 3) for one in (BUYS, OF, KNOWS)}
            self.conv = pyg.HeteroConv(convs, aggr=None)

        def forward(self, x_dict, edge_index_dict):
            return self.conv(x_dict, edge_index_dict)

    assert widths(exported(Net(), graph=TWO)) == {"user": 6, "item": 3}


def widths(done: Export) -> dict[str, int]:
    program = done.exported.program
    return {name: program.widths[out] for name, out in program.results.items()}


class Rgat(nn.Module):
    def __init__(self, relations: int, **how: Any) -> None:
        super().__init__()
        self.conv = pyg.RGATConv(6, 4, relations, heads=2, **how)

    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, edge_type)


MODES = [("additive", 1), ("multiplicative", 1), ("multiplicative", 3)]


@pytest.mark.parametrize("mechanism", ["within-relation", "across-relation"])
@pytest.mark.parametrize(("mode", "dim"), MODES)
def test_relational_attention(mechanism: str, mode: str, dim: int) -> None:
    how = {"attention_mechanism": mechanism, "attention_mode": f"{mode}-self-attention", "dim": dim}
    exported(Rgat(2, **how), graph=ONE)
    exported(Rgat(3, **how, num_bases=2, concat=False), graph=TWO)
    exported(Rgat(3, **how, num_blocks=2, bias=False), graph=TWO)


@pytest.mark.parametrize("mod", ["additive", "scaled", "f-additive", "f-scaled"])
@pytest.mark.parametrize("mechanism", ["within-relation", "across-relation"])
def test_relational_attention_with_shares_by_numbers_of_edges(mechanism: str, mod: str) -> None:
    how: dict[str, Any] = {"attention_mechanism": mechanism, "mod": mod}
    exported(Rgat(2, **how), graph=ONE)
    exported(Rgat(3, **how, concat=False), graph=TWO)
    how |= {"attention_mode": "multiplicative-self-attention", "dim": 3}
    exported(Rgat(3, **how), graph=TWO)


@pytest.mark.parametrize("norm", [None, "batch_norm"])
def test_edge_convolutions_with_norms_of_columns(norm: str | None) -> None:
    from torch_geometric.nn import models

    exported(models.EdgeCNN(5, 8, 2, 3, norm=norm))


def test_a_norm_over_all_edges_is_refused() -> None:
    from torch_geometric.nn import models

    with pytest.raises(ModelError) as caught:
        export_module(shake(models.EdgeCNN(5, 8, 2, 3, norm="layer_norm")))
    told = " ".join(str(caught.value).split())
    assert re.search(r"\(LayerNorm\) is over all edges.*norm='batch_norm', or LayerNorm\(", told)


NET = """
import torch
from torch_geometric.nn import GCNConv


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(3, 2)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)
"""


def test_the_command_says_nothing_but_its_result(tmp_path: Path) -> None:
    """Extensions of a user's libraries report what is left as the interpreter ends."""
    (tmp_path / "net_quiet.py").write_text(NET)
    torch.save(pyg.GCNConv(3, 2).state_dict(prefix="conv."), tmp_path / "best.pt")
    code = "import sys, embertide.cli; sys.exit(embertide.cli.command())"
    command = ("export", "net_quiet.py:Net", "--weights", "best.pt", "--out", "model")
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "GCNConv conv" in done.stdout
