"""Whole models as their libraries' examples have them, and what stands in their way."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.models.dgl_interop import why_no_dgl
from embertide.steps import Aggregate
from embertide.tracing.export import Export, export_module
from embertide.tracing.graph_types import named_types
from embertide.tracing.load import build
from embertide.tracing.prove.agreement import TOLERANCE
from tests.support.models import Files, shake
from tests.support.pyg import pyg

# First, as it keeps what PyG warns of while it is imported to itself.
assert pyg

from tests.support import export_examples  # noqa: E402

needs_dgl = pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")


def exported(module: nn.Module, **more: Any) -> Export:
    done = export_module(shake(module), **more)
    assert done.proof.largest_error <= TOLERANCE
    return done


@pytest.mark.parametrize("name", export_examples.EXAMPLES)
def test_examples_of_pyg(name: str) -> None:
    exported(export_examples.EXAMPLES[name](), width=export_examples.IN)


@needs_dgl
@pytest.mark.parametrize(
    "name",
    [
        *("gat ppi", "gated gcn", "loops", "loops added", "loops removed"),
        *("loops weighted", "loops weighted and added", "loops weighted and removed"),
    ],
)
def test_examples_of_dgl(name: str) -> None:
    from tests.support import export_examples_dgl

    exported(export_examples_dgl.EXAMPLES[name](), width=export_examples.IN)


@needs_dgl
def test_attention_by_relation_of_dgl() -> None:
    from tests.support.export_examples_dgl import GRAPH, HGT

    module = HGT(GRAPH["nodes"], GRAPH["edges"])
    done = exported(module, graph=named_types(GRAPH, Files()))  # type: ignore[arg-type]
    assert set(done.exported.program.results) == {"user", "game"}


# ---- a sparse matrix in place of edges


@pytest.mark.parametrize("way", ["spmm", "operator", "method"])
def test_a_sparse_adjacency_matrix(way: str) -> None:
    done = exported(export_examples.Kipf(way), width=5, inputs={"adj": "adjacency"})
    totals = [step for step in done.exported.program.steps if isinstance(step, Aggregate)]
    assert [total.edge_weight for total in totals] == [True, True]


@pytest.mark.parametrize(
    ("way", "inputs", "told"),
    [
        (
            "turned",
            {"adj": "adjacency"},
            r"py:\d+: t of an adjacency matrix is not known; known is",
        ),
        ("spmm", {}, r'py:\d+: edges are multiplied as a sparse matrix.*"adj": "adjacency"'),
    ],
)
def test_what_is_not_done_with_a_sparse_matrix(way: str, inputs: dict[str, str], told: str) -> None:
    with pytest.raises(ModelError, match=told):
        export_module(export_examples.Kipf(way), width=5, inputs=inputs)


# ---- a method in place of forward


def test_a_method_takes_the_place_of_forward() -> None:
    file = export_examples.__file__
    module = build(f"{file}:LinkPredictor.encode", {"out_channels": 4})
    done = exported(module)
    program = done.exported.program
    assert [program.widths[out] for out in program.results.values()] == [4]
    assert done.to_json()["proof"]["largest_error"] <= TOLERANCE


def test_a_table_by_a_method() -> None:
    """LightGCN's forward scores pairs; its embeddings are what get_embedding gives."""
    module = pyg.LightGCN(31, 4, num_layers=2)
    module.forward = module.get_embedding
    exported(module, tables={"": "embedding"})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("LinkPredictor.embed", r"LinkPredictor has no method or module embed; write FILE.py:NAME"),
        ("LinkPredictor.training", r"LinkPredictor has no method or module training; write FILE"),
    ],
)
def test_methods_that_are_not_there(name: str, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        build(f"{export_examples.__file__}:{name}", {})


def test_a_module_without_forward_is_told_of_methods() -> None:
    with pytest.raises(ModelError, match=r"has no forward; name a method .* FILE\.py:NAME\.METHOD"):
        export_module(export_examples.LinkPredictor())


def test_several_results_are_told_of_methods() -> None:
    """Where one result of several is none of the nodes'; two of the nodes are both exported."""

    class Variational(export_examples.LinkPredictor):
        def forward(self, x, edge_index):
            z = self.encode(x, edge_index)
            return z, (self.distance(z) if self.scored else x)

        def distance(self, z):
            return (z * z).sum()

    module = Variational()
    module.scored = False
    assert set(exported(module).exported.program.results) == {"/out0", "/out1"}
    module.scored = True
    why = (
        r"a row for the whole graph is returned as 'out1'.*NAME\.METHOD names\. --results .* - for"
    )
    with pytest.raises(ModelError, match=why):
        export_module(module)


# ---- functions of libraries


def test_functions_are_themselves_again() -> None:
    """Whatever a module holds records while it is exported, and behind that is PyG's own."""
    from torch_geometric import utils

    before = inspect.getsource(utils.softmax), utils.degree(torch.tensor([1, 1]), 3).tolist()
    with pytest.raises(ModelError):
        export_module(export_examples.Kipf("turned"), width=5, inputs={"adj": "adjacency"})
    exported(export_examples.SIGN(), width=5)
    after = inspect.getsource(utils.softmax), utils.degree(torch.tensor([1, 1]), 3).tolist()
    assert before == after
    assert utils.degree.__kwdefaults__ is None
