"""Every convolution of the libraries, with each of its options: one table for all tests.

A case says how the module is made and which layer of ``model.yaml`` describes it.
`unit/test_convolutions.py` compares them, `unit/test_export_convs.py` exports the module, those
with ``on_grids`` run on every grid, and docs/convolutions.md is written from them.
"""

from __future__ import annotations

from typing import Any

from embertide.models.layer import Library
from tests.support.conv_cases import (
    dgl,
    dgl_common,
    edges,
    pyg,
    pyg_common,
    several_options,
    traced,
)
from tests.support.conv_cases.case import ConvCase
from tests.support.model_examples_dgl import dgl as dgl_library
from tests.support.pyg import pyg as pyg_library


def _joined(*tables: dict[str, ConvCase]) -> dict[str, ConvCase]:
    cases = {name: case for table in tables for name, case in table.items()}
    assert len(cases) == sum(map(len, tables)), "two cases have one name"
    return cases


CASES: dict[Library, dict[str, ConvCase]] = {
    "pyg": _joined(
        pyg_common.CASES, edges.PYG, pyg.CASES, several_options.PYG, traced.PYG, traced.AGGREGATORS
    ),
    "dgl": _joined(dgl_common.CASES, dgl.CASES, edges.DGL, several_options.DGL, traced.DGL),
}


def library_nn(library: Library) -> Any:
    """The modules that a case is made from."""
    return pyg_library if library == "pyg" else dgl_library.nn.pytorch
