"""Every convolution of the libraries, with each of its options: one table for all tests.

A case says how the module is made and which layer of ``model.yaml`` describes it.
`unit/test_convolutions.py` compares them, `unit/test_export_convs.py` exports the module, those
with ``on_grids`` run on every grid, and docs/convolutions.md is written from them. An example is a
whole model, which docs/model.md shows.
"""

from __future__ import annotations

from typing import Any

from embertide.models.layer import Library
from tests.support.conv_cases import (
    dgl_common,
    dgl_filters,
    edges,
    pyg_common,
    pyg_convs,
    pyg_filters,
    several_options,
    traced,
)
from tests.support.conv_cases.case import ConvCase, Example
from tests.support.dgl_library import dgl
from tests.support.pyg import pyg


def _joined(*tables: dict[str, ConvCase]) -> dict[str, ConvCase]:
    cases = {name: case for table in tables for name, case in table.items()}
    assert len(cases) == sum(map(len, tables)), "two cases have one name"
    return cases


CASES: dict[Library, dict[str, ConvCase]] = {
    "pyg": _joined(
        pyg_common.CASES,
        edges.PYG,
        pyg_convs.CASES,
        pyg_filters.CASES,
        several_options.PYG,
        traced.PYG,
        traced.AGGREGATORS,
    ),
    "dgl": _joined(dgl_common.CASES, dgl_filters.CASES, edges.DGL, several_options.DGL, traced.DGL),
}
EXAMPLES: dict[Library, dict[str, Example]] = {
    "dgl": dgl_common.EXAMPLES | dgl_filters.EXAMPLES | edges.DGL_EXAMPLES,
    "pyg": pyg_common.EXAMPLES | pyg_convs.EXAMPLES | pyg_filters.EXAMPLES | edges.PYG_EXAMPLES,
}
"""One of each kind of layer, for docs/model.md."""


def library_nn(library: Library) -> Any:
    """The modules that a case is made from."""
    return pyg if library == "pyg" else dgl.nn.pytorch
