"""Exported modules give on grids what they give themselves, in float64 and in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from embertide.models.dgl_interop import why_no_dgl
from embertide.steps import Program
from embertide.tracing.export import export_module
from tests.support.exact import TOLERANCE, relative_error
from tests.support.models import read_again, shake
from tests.support.pyg import pyg
from tests.support.ranks import on_grid
from tests.support.tasks import embed_all
from tests.support.tiers import share
from tests.support.world import Graph, make_features, make_graph

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

from tests.support import export_examples, export_loops  # noqa: E402

pytestmark = pytest.mark.distributed

WIDTH = 5
LOOPS = (
    *("held", "weighing", "scaled", "weighted remove add add", "weighted remove add std"),
    *("weighted remove add softmax", "weighted remove remaining add"),
)
OF_DGL = ("loops", "loops added", "loops weighted", "gat ppi")
MAKE: dict[str, Callable[[], nn.Module]] = {
    **export_examples.EXAMPLES,
    **{name: export_loops.CASES[name] for name in LOOPS},
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Without two self-loops on one node, of whose weights PyG keeps any."""
    made = make_graph(weighted=True)
    _, first = np.unique(made.src * made.nodes + made.dst, return_index=True)
    stay = (made.src != made.dst) | np.isin(np.arange(len(made.src)), first)
    assert made.weight is not None
    return Graph(made.src[stay], made.dst[stay], made.weight[stay])


@pytest.fixture(scope="module")
def modules() -> dict[str, nn.Module]:
    made = {name: shake(make()) for name, make in MAKE.items()}
    if not why_no_dgl():
        from tests.support.export_examples_dgl import EXAMPLES

        made |= {f"dgl {name}": shake(EXAMPLES[name]()) for name in OF_DGL}
    return made


@pytest.fixture(scope="module")
def programs(modules: dict[str, nn.Module]) -> dict[str, Program]:
    return {
        name: read_again(export_module(module, width=WIDTH)) for name, module in modules.items()
    }


@pytest.fixture(scope="module")
def expected(modules: dict[str, nn.Module], graph: Graph) -> dict[str, np.ndarray]:
    """[N, D'] float64 of every module."""
    return {name: _own(module, graph) for name, module in modules.items()}


GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2))


@pytest.mark.parametrize("grid", GRIDS)
def test_exported_modules_are_exact(
    grid: tuple[int, int],
    programs: dict[str, Program],
    expected: dict[str, np.ndarray],
    graph: Graph,
    pytestconfig: pytest.Config,
) -> None:
    """On grids by turns."""
    programs = share(programs, GRIDS.index(grid), len(GRIDS), pytestconfig)
    graphs = {("own", True): graph}
    cases = [(program, "own", True) for program in programs.values()]
    answers = on_grid(*grid, embed_all, graphs, cases)
    errors = {
        name: relative_error(np.concatenate(parts), expected[name])
        for name, *parts in zip(programs, *answers, strict=True)
    }
    assert {name: error for name, error in errors.items() if not error <= TOLERANCE} == {}


def _own(module: nn.Module, graph: Graph) -> np.ndarray:
    """What a module gives itself."""
    x, weight = make_features(WIDTH).double(), torch.from_numpy(graph.weight).double()
    src, dst = torch.from_numpy(graph.src), torch.from_numpy(graph.dst)
    names = module.forward.__code__.co_varnames[: module.forward.__code__.co_argcount]
    given: dict[str, Any] = {"x": x, "edge_index": torch.stack([src, dst]), "edge_weight": weight}
    if "g" in names:
        from embertide.models.dgl_interop import load_dgl

        real = load_dgl().graph((src, dst), num_nodes=graph.nodes)
        real.edata["w"] = weight
        given |= {"g": real, "h": x, "inputs": x}
        for one in module.modules():
            if "_allow_zero_in_degree" in vars(one):
                vars(one)["_allow_zero_in_degree"] = True
    with torch.no_grad():
        return module.double().eval()(**{n: given[n] for n in names if n in given}).numpy()
