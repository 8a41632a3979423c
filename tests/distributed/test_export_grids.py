"""Exported modules give on grids what they give themselves, in float64 and in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from embertide.models.dgl_interop import why_no_dgl
from embertide.program.steps import Program
from embertide.tracing.export import export_module
from tests.support.exact import TOLERANCE, relative_error
from tests.support.expected import inputs
from tests.support.export_texts import module_of
from tests.support.models import read_again
from tests.support.ranks import on_grid
from tests.support.tasks import embed_all
from tests.support.tiers import share
from tests.support.world import Graph, make_features, make_graph

pytestmark = pytest.mark.distributed

WIDTH, EDGE_FEATURES = 5, 2
ALL = ("families", "linear_attention", "recurrent", "all_rows", "tokens")
"""Files all of whose cases run."""
SOME = {
    "examples": (
        *("dna", "rev_gnn", "cluster_gcn", "molecules", "sign", "correct_and_smooth"),
        *(
            "sums in_place",
            "sums onto_rows",
            "sums onto_rows_in_place",
            "sums largest",
            "sums mean",
        ),
    ),
    "changed_edges": (
        *("held", "weighing", "scaled", "weighted remove add add", "weighted remove add std"),
        *("weighted remove add softmax", "weighted remove remaining add"),
    ),
    "dgl_examples": ("loops", "loops added", "loops weighted", "gat ppi"),
}
NARROW = (
    *("families cluster gcn", "families jk lstm", "families pna edge_dim", "families mf"),
    "all_rows w / max",
)
"""Those that run on as many columns of workers as there are columns of results."""


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
def exported() -> dict[str, tuple[nn.Module, Program]]:
    """Modules, and their programs."""
    some = {stem: names for stem, names in SOME.items() if "dgl" not in stem or not why_no_dgl()}
    chosen = {stem: tuple(inputs(f"exports/{stem}.txt")) for stem in ALL} | some
    return {
        f"{stem} {name}": _exported(f"exports/{stem}.txt", name)
        for stem, names in chosen.items()
        for name in names
    }


def _exported(file: str, name: str) -> tuple[nn.Module, Program]:
    module, options = module_of(file, name)
    return module, read_again(export_module(module, **options))


@pytest.fixture(scope="module")
def expected(exported: dict[str, tuple[nn.Module, Program]], graph: Graph) -> dict[str, np.ndarray]:
    """[N, D'] float64 of every module."""
    return {name: _own(module, graph) for name, (module, _) in exported.items()}


GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2), (1, 4))


@pytest.mark.parametrize("grid", GRIDS)
def test_exported_modules_are_exact(
    grid: tuple[int, int],
    exported: dict[str, tuple[nn.Module, Program]],
    expected: dict[str, np.ndarray],
    graph: Graph,
    pytestconfig: pytest.Config,
) -> None:
    """On grids by turns, and few as narrow slices."""
    chosen = {name: exported[name] for name in NARROW}
    if grid != (1, 4):
        chosen = share(exported, GRIDS.index(grid), len(GRIDS) - 1, pytestconfig)
    cases = [(program, "own", True) for _, program in chosen.values()]
    answers = on_grid(*grid, embed_all, {("own", True): graph}, cases)
    errors = {
        name: relative_error(np.concatenate(parts), expected[name])
        for name, *parts in zip(chosen, *answers, strict=True)
    }
    assert {name: error for name, error in errors.items() if not error <= TOLERANCE} == {}


def _own(module: nn.Module, graph: Graph) -> np.ndarray:
    """What a module gives itself."""
    x, weight = make_features(WIDTH).double(), torch.from_numpy(graph.weight).double()
    src, dst = torch.from_numpy(graph.src), torch.from_numpy(graph.dst)
    names = module.forward.__code__.co_varnames[: module.forward.__code__.co_argcount]
    given: dict[str, Any] = {"x": x, "edge_index": torch.stack([src, dst]), "edge_weight": weight}
    given["edge_attr"] = torch.from_numpy(graph.features).double()
    if "g" in names:
        from embertide.models.dgl_interop import load_dgl

        real = load_dgl().graph((src, dst), num_nodes=graph.nodes)
        real.edata["w"] = weight
        given |= {"g": real, "h": x, "inputs": x}
        for one in module.modules():
            if "_allow_zero_in_degree" in vars(one):
                vars(one)["_allow_zero_in_degree"] = True
    with torch.no_grad():
        out: torch.Tensor = module.double().eval()(**{n: given[n] for n in names if n in given})
    return out.numpy()
