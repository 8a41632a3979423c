"""Random models, and what is said where DGL is not to be had."""

from __future__ import annotations

import sys
from typing import get_args

import pytest
import safetensors.torch
import torch

from embertide.edge.synth.hetero import relations
from embertide.errors import ModelError
from embertide.models import dgl_interop
from embertide.models.read import read_model
from embertide.models.reference import run_typed_reference
from embertide.models.synth import Conv, write_random_model, write_random_typed_model
from tests.support.hetero_case import Chain, Relu
from tests.support.models import Files, assert_same
from tests.support.pyg import pyg


@pytest.mark.parametrize("conv", get_args(Conv))
def test_random_models_can_be_read(conv: Conv) -> None:
    files, features = Files(), 3 if conv == "edge_gat" else 0
    write_random_model(
        files, "file:///r/", conv, layers=3, width_in=7, hidden=12, out=8, heads=4, seed=1,
        edge_features=features,
    )  # fmt: skip
    program = read_model(files, "file:///r")
    assert (program.layers, program.input_width, program.output_width) == (3, 7, 8)
    assert program.widths[program.output] == 8


def test_a_random_model_of_several_types_is_pygs_own() -> None:
    """Its weights load into HeteroConv, and the types without features get theirs in it."""
    files, widths = Files(), {"user": 7, "item": 7}
    write_random_typed_model(
        files, "file:///r", relations(), widths, layers=2, hidden=6, out=4, seed=1
    )
    sizes, given = {"user": 9, "item": 5, "tag": 3}, torch.Generator().manual_seed(2)
    x = {
        name: torch.randn(sizes[name], width, generator=given).double()
        for name, width in widths.items()
    }
    edges = {
        one: torch.stack([torch.randint(sizes[one[at]], (20,), generator=given) for at in (0, 2)])
        for one in relations()
    }
    program = read_model(files, "file:///r")
    layer = {":".join(one): (*ends, None) for one, ends in edges.items()}
    found = run_typed_reference(program, [layer] * 2, x, sizes)
    module = _hetero_sage(safetensors.torch.load(files.objects["file:///r/weights.safetensors"]))
    with torch.no_grad():
        expected = module.double()(x, edges)
    assert set(found) == {"user", "item", "tag"}
    for name, values in found.items():
        assert_same(values, expected[name][: sizes[name]], 1e-9)


def _hetero_sage(tensors: dict[str, torch.Tensor]) -> torch.nn.Module:
    """PyG's layers with these weights."""
    layers: dict[str, torch.nn.Module] = {}
    for number, (into, out) in enumerate([(7, 6), (6, 4)]):
        over = [one for one in relations() if number or one[0] != "tag"]
        convs = {
            one: pyg.SAGEConv(into, out, root_weight=number > 0 or one[2] != "tag") for one in over
        }
        layers |= {f"conv{number}": pyg.HeteroConv(convs), f"act{number}": Relu()}
    layers.pop("act1")
    module = Chain(**layers)
    named = {name.replace("convs.", "conv", 1): tensor for name, tensor in tensors.items()}
    module.load_state_dict(named)
    return module


def test_the_seed_decides() -> None:
    one, same, other = Files(), Files(), Files()
    for files, seed in ((one, 1), (same, 1), (other, 2)):
        write_random_model(
            files, "file:///r", "gcn", layers=2, width_in=7, hidden=12, out=8, seed=seed
        )
    assert one.objects == same.objects
    assert one.objects != other.objects


def test_heads_that_do_not_divide_the_width() -> None:
    with pytest.raises(ModelError, match="3 heads do not divide a width of 16 columns"):
        write_random_model(
            Files(), "file:///r", "gat", layers=2, width_in=7, hidden=16, out=9, heads=3
        )


@pytest.mark.parametrize(("conv", "features"), [("edge_gat", 0), ("gat", 2)])
def test_features_of_edges_that_a_convolution_does_not_read(conv: Conv, features: int) -> None:
    with pytest.raises(ModelError, match=f"conv {conv} with {features} features of each edge"):
        write_random_model(
            Files(), "file:///r", conv, layers=2, width_in=7, hidden=8, out=8,
            edge_features=features,
        )  # fmt: skip


def test_python_without_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    with pytest.raises(dgl_interop.DglUnavailable, match=r"no working wheel for Python 3\.12"):
        dgl_interop.load_dgl()


def test_dgl_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 1))
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(dgl_interop.DglUnavailable, match=r"not installed: pip install 'embe"):
        dgl_interop.load_dgl()
