"""What comes of modules that are exported: their programs, or the reasons why there is none."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from embertide.models.dgl_interop import load_dgl
from embertide.tracing.export import export_module
from tests.support.expected import Expected, inputs
from tests.support.export_texts import cases, export_text
from tests.support.models import shake


@pytest.mark.parametrize(("file", "name"), cases(dgl=False))
def test_modules_and_their_exports(
    file: str, name: str, expected: Expected, tmp_path: Path
) -> None:
    expected.check(file, name, export_text(file, name, tmp_path), inputs(file))


@pytest.mark.dgl
@pytest.mark.parametrize(("file", "name"), cases(dgl=True))
def test_modules_of_dgl_and_their_exports(
    file: str, name: str, expected: Expected, tmp_path: Path
) -> None:
    expected.check(file, name, export_text(file, name, tmp_path), inputs(file))


@pytest.mark.dgl
def test_a_module_keeps_its_graph() -> None:
    """Which stands for the job's while it is exported."""

    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.g = load_dgl().graph(([0, 1, 2, 2], [1, 2, 0, 2]))
            self.conv = load_dgl().nn.pytorch.SAGEConv(5, 4, "mean")

        def forward(self, features):
            return self.conv(self.g, features)

    module = Keeping()
    graph = module.g
    export_module(shake(module))
    assert module.g is graph


def test_a_scripted_function_goes_on_as_it_was() -> None:
    """Its code in Python stands for it while a module that calls it is exported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gated = torch.jit.script(_gated)

    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(5, 3)

        def forward(self, x, edge_index):
            return gated(self.lin(x))

    export_module(shake(Calls()))
    assert isinstance(gated, torch.jit.ScriptFunction)
    assert gated(torch.ones(1)).item() == pytest.approx(0.7310586)


def _gated(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)
