"""Models of several node types give what their library's own modules give."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from embertide.models.dgl_interop import load_dgl
from tests.support import hetero_cases_dgl, hetero_cases_pyg
from tests.support.hetero_case import HeteroCase, edges, shaken, weights
from tests.support.models import assert_same, program_of
from tests.support.pyg import pyg
from tests.support.typed_world import COUNTS

ONE_GRAPH = ("rgcn", "hgt")
"""DGL's modules that take all nodes and edges as one graph."""


@pytest.mark.parametrize("name", hetero_cases_pyg.CASES)
def test_pyg(name: str) -> None:
    case = hetero_cases_pyg.CASES[name]
    more = {"edge_weight_dict": weights()} if case.weighted else {}
    _assert_exact("pyg", case, pyg, edges(), **more)


@pytest.mark.dgl
@pytest.mark.parametrize("name", hetero_cases_dgl.CASES)
def test_dgl(name: str) -> None:
    case, dgl = hetero_cases_dgl.CASES[name], load_dgl()
    ends = {relation: tuple(both) for relation, both in edges().items()}
    graph = dgl.heterograph(ends, {name: COUNTS[name] for name in ("user", "item", "tag")})
    one_graph = name.startswith(ONE_GRAPH)
    _assert_exact("dgl", case, dgl.nn.pytorch, edges() if one_graph else graph)


def _assert_exact(library: str, case: HeteroCase, nn: Any, graph: Any, **more: Any) -> None:
    module = shaken(case, nn)
    program = case.program(library, module)
    with torch.no_grad():
        expected = module.double()(case.features(), graph, **more)
    found = case.found(program)
    assert found
    for node_type, values in found.items():
        # PyG takes as many rows as sources where the destination type has no features.
        assert_same(values, expected[node_type][: COUNTS[node_type]], case.tolerance)


def test_what_the_outputs_do_not_need_is_left_out() -> None:
    case = hetero_cases_pyg.CASES["hetero-linked"]
    module = shaken(case, pyg)
    tags = program_of(f"library: pyg\noutputs: [tag]\n{case.text}", module)
    every = case.program("pyg", module)
    assert set(tags.inputs) == {"item", "tag"}
    assert set(every.inputs) == {"user", "item", "tag"}
    assert tags.relations == ["item:has:tag"]
    read = {name for step in tags.steps for name in step.param_names()}
    assert set(tags.params) == read < set(every.params)
    torch.testing.assert_close(case.found(tags)["tag"], case.found(every)["tag"])
