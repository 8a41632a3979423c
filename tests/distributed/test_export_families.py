"""Models as people have them give on every kind of grid what they give themselves in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from embertide.steps import Program
from embertide.tracing.export import export_module
from tests.support.exact import TOLERANCE, relative_error
from tests.support.export_families import EDGE_FEATURES, FAMILIES, NARROW, WIDTH
from tests.support.models import read_again, shake
from tests.support.ranks import on_grid
from tests.support.tasks import embed_all
from tests.support.tiers import share
from tests.support.world import Graph, make_features, make_graph

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Without two self-loops on one node, of whose weights PyG keeps any."""
    made = make_graph(weighted=True, features=EDGE_FEATURES)
    _, first = np.unique(made.src * made.nodes + made.dst, return_index=True)
    stay = (made.src != made.dst) | np.isin(np.arange(len(made.src)), first)
    assert made.weight is not None
    assert made.features is not None
    return Graph(made.src[stay], made.dst[stay], made.weight[stay], features=made.features[stay])


@pytest.fixture(scope="module")
def modules() -> dict[str, nn.Module]:
    return {name: shake(make()) for name, make in FAMILIES.items()}


@pytest.fixture(scope="module")
def programs(modules: dict[str, nn.Module]) -> dict[str, Program]:
    return {name: _exported(module) for name, module in modules.items()}


def _exported(module: nn.Module) -> Program:
    columns = EDGE_FEATURES if "edge_attr" in _arguments(module) else None
    return read_again(export_module(module, width=WIDTH, edge_features=columns))


def _arguments(module: Any) -> tuple[str, ...]:
    code = module.forward.__code__
    return tuple(code.co_varnames[1 : code.co_argcount])


GRIDS = ((2, 1), (1, 2), (2, 2), (1, 1), (1, 4))


@pytest.mark.parametrize("grid", GRIDS)
def test_families_are_exact(
    grid: tuple[int, int],
    programs: dict[str, Program],
    modules: dict[str, nn.Module],
    graph: Graph,
    pytestconfig: pytest.Config,
) -> None:
    """On grids by turns, and few as narrow slices."""
    chosen = {name: one for name, one in programs.items() if name in NARROW}
    if grid != (1, 4):
        chosen = share(programs, GRIDS.index(grid), len(GRIDS) - 1, pytestconfig)
    graphs = {("own", True): graph}
    cases = [(program, "own", True) for program in chosen.values()]
    answers = on_grid(*grid, embed_all, graphs, cases)
    errors = {
        name: relative_error(np.concatenate(parts), _own(modules[name], graph))
        for name, *parts in zip(chosen, *answers, strict=True)
    }
    assert {name: error for name, error in errors.items() if not error <= TOLERANCE} == {}


def _own(module: nn.Module, graph: Graph) -> np.ndarray:
    """What a module gives itself."""
    given: dict[str, Any] = {
        "x": make_features(WIDTH).double(),
        "edge_index": torch.from_numpy(np.stack([graph.src, graph.dst])),
        "edge_weight": torch.from_numpy(graph.weight).double(),
        "edge_attr": torch.from_numpy(graph.features).double(),
    }
    with torch.no_grad():
        out: torch.Tensor = module.double().eval()(
            **{name: given[name] for name in _arguments(module) if name in given}
        )
    return out.numpy()
