"""Models as their libraries' examples have them give, exported, what they give themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from embertide.models.dgl_interop import why_no_dgl
from embertide.models.read import read_files
from embertide.models.reference import run_reference
from embertide.tracing.export import Export, export_module
from embertide.tracing.prove.agreement import TOLERANCE
from embertide.tracing.record.precision import quiet
from tests.support import export_models, export_models_nodes
from tests.support.exact import relative_error
from tests.support.export_models import IN, OUT
from tests.support.models import GRAPHS, Files, features, shake

GRAPH = GRAPHS["directed"]


def exported(make: Any, width: int | None = None) -> tuple[torch.nn.Module, Export]:
    module = shake(make())
    return module, export_module(module, width=width)


def as_read(done: Export) -> Files:
    files = Files({})
    done.write(files, "file:///m")  # type: ignore[arg-type]
    return files


def forward(module: torch.nn.Module, name: str) -> torch.Tensor:
    """What the module itself gives, in float64, on a graph that export never saw."""
    x, edges, weight = features(IN), torch.stack([GRAPH.src, GRAPH.dst]), GRAPH.weight.double()
    module = module.double()
    with torch.no_grad():
        if name in ("appnp", "sgc"):
            from torch_geometric.data import Data

            return module(Data(x=x, edge_index=edges))
        return module(x, edges, weight) if name in WEIGHTED else module(x, edges)


PYG = export_models.PYG | export_models_nodes.PYG
WEIGHTED = (
    "gcn",
    "own messages",
    *(f"models.GCN jk={mode}" for mode in ("cat", "max", "lstm")),
)


@pytest.mark.parametrize("name", PYG)
def test_models_of_pyg(name: str) -> None:
    module, done = exported(PYG[name])
    assert done.proof.largest_error <= TOLERANCE
    program = read_files(as_read(done), "file:///m").program()  # type: ignore[arg-type]
    assert all(tensor.dtype == torch.float32 for tensor in program.params.values())
    layer = GRAPH.layer(name in WEIGHTED)
    found = run_reference(program, [layer] * program.layers, features(IN))
    expected = forward(module, name)
    assert expected.shape[1] == OUT
    # Workers have folded norms and shares in float32.
    assert relative_error(found, expected) <= 1e-6


@pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")
@pytest.mark.parametrize(
    "name",
    ["gcn", "sage", "gat", "gin", "jknet", "jknet lstm", "appnp", "weighted sage", "scores"],
)
def test_models_of_dgl(name: str) -> None:
    from tests.support.export_models_dgl import DGL, dgl

    # Its one Linear reads features and their mean, so it does not tell the features' width.
    module, done = exported(DGL[name], IN if name == "weighted sage" else None)
    assert done.proof.largest_error <= TOLERANCE
    program = read_files(as_read(done), "file:///m").program()  # type: ignore[arg-type]
    graph, x = dgl.graph((GRAPH.src, GRAPH.dst), num_nodes=len(features(IN))), features(IN)
    graph.edata["w"] = GRAPH.weight.double()
    for one in module.modules():
        getattr(one, "set_allow_zero_in_degree", lambda _allow: None)(True)
    module = module.double()
    with quiet():
        if name == "weighted sage":
            graph.ndata["feat"] = x
            expected = module(graph)
        else:
            expected = module([graph] * 3 if name == "sage" else graph, x)
    found = run_reference(program, [GRAPH.layer(True)] * program.layers, x)
    assert relative_error(found, expected) <= 1e-6
