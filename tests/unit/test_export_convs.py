"""Every convolution is exported as one layer, with options that are not the defaults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from embertide.errors import ModelError
from embertide.models.dgl_interop import why_no_dgl
from embertide.models.kinds import KNOWN
from embertide.models.layer import Library
from embertide.tracing.export import export_module
from embertide.tracing.forward.replacements import BY_NUMBER, BY_RELATION
from embertide.tracing.prove.agreement import TOLERANCE
from tests.support.conv_cases import CASES, library_nn
from tests.support.conv_cases.case import ConvCase
from tests.support.models import program_of, shake
from tests.support.pyg import pyg

ROOT = Path(__file__).parents[2]


class Around(nn.Module):
    """A module around a case's convolution, given all that it takes."""

    def __init__(self, case: ConvCase, library: Library) -> None:
        super().__init__()
        self.case, self.conv = case, case.make(library_nn(library))


class OnPyg(Around):
    def forward(self, x, edge_index, edge_attr, edge_weight=None):
        own = [edge_attr] if self.case.features else []
        more = {"edge_weight": edge_weight} if self.case.weighted else {}
        return self.case.forward(self.conv, x, edge_index, *own, **more)


class OnDgl(Around):
    def forward(self, g, x, efeat):
        own = [efeat] if self.case.features else []
        more = {"edge_weight": g.edata["w"]} if self.case.weighted else {}
        return self.case.forward(self.conv, g, x, *own, **more)


def exported(library: Library) -> list[str]:
    return [name for name, case in CASES[library].items() if case.exported]


@pytest.mark.parametrize("name", exported("pyg"))
def test_pyg(name: str) -> None:
    check("pyg", OnPyg(CASES["pyg"][name], "pyg"))


@pytest.mark.dgl
@pytest.mark.parametrize("name", exported("dgl"))
def test_dgl(name: str) -> None:
    check("dgl", OnDgl(CASES["dgl"][name], "dgl"))


def check(library: Library, module: Around) -> None:
    """It is proven, one layer of the convolution's name, and reads the features it is given."""
    case, name = module.case, type(module.conv).__name__
    shake(module)
    done = export_module(module, width=width_of(library, module), edge_features=case.features or 3)
    assert done.proof.largest_error <= TOLERANCE
    kinds = [layer.kind for layer in done.exported.layers if layer.graph or name in KNOWN[library]]
    assert kinds == [name]
    read = done.exported.program.edge_columns()
    assert read == ({"": case.features} if case.features else {})


def width_of(library: Library, module: Around) -> int:
    """The columns of the features."""
    if not module.case.layer:
        return getattr(module.conv, "in_size", 5)
    program = program_of(module.case.text(library), nn.ModuleDict({"conv": module.conv}))
    return int(program.input_width)


@pytest.mark.parametrize("library", CASES)
def test_every_module_known_as_a_whole_has_a_case(library: Library) -> None:
    if library == "dgl" and why_no_dgl():
        pytest.skip(f"DGL's modules: {why_no_dgl()}")
    cases = [CASES[library][name] for name in exported(library)]
    made = {type(case.make(library_nn(library))).__name__ for case in cases}
    assert set(KNOWN[library]) <= made


def test_the_document_names_what_has_a_replacement() -> None:
    text = " ".join((ROOT / "docs" / "export" / "modules.md").read_text().split())
    respelled = re.search(r"relation by relation: (.*?)\. ", text)
    assert respelled is not None
    assert respelled[1].split(", ") == [name for _, name in BY_RELATION]
    numbered = re.search(r"given as numbers\*\*, (.*?) of PyG, (.*?) of DGL\. ", text)
    assert numbered is not None
    for package, names in zip(("torch_geometric", "dgl"), numbered.groups(), strict=True):
        assert names.split(", ") == [name for one, name in BY_NUMBER if one == package]


@pytest.mark.parametrize("aggr", ["lstm", "median", "mul"])
def test_aggregators_that_no_step_has(aggr: str) -> None:
    kwargs: dict[str, Any] = {"in_channels": 5, "out_channels": 5} if aggr == "lstm" else {}
    case = ConvCase(lambda _nn: pyg.SAGEConv(5, 3, aggr=aggr, aggr_kwargs=kwargs))
    with pytest.raises(ModelError, match=r"conv \(SAGEConv\) aggregates by \w+; known are sum, "):
        export_module(OnPyg(case, "pyg"), width=5, edge_features=3)
