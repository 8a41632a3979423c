"""Methods in place of forward, and functions of libraries that are themselves again."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.tracing.export import Export, export_module
from embertide.tracing.load import build
from embertide.tracing.prove.agreement import TOLERANCE
from tests.support.export_texts import code_of, module_of
from tests.support.models import shake
from tests.support.pyg import pyg

EXAMPLES = "exports/examples.txt"
FILE = code_of(EXAMPLES, "link_pred").__file__


def exported(module: nn.Module, **more: Any) -> Export:
    done = export_module(shake(module), **more)
    assert done.proof.largest_error <= TOLERANCE
    return done


def test_a_method_takes_the_place_of_forward() -> None:
    module = build(f"{FILE}:LinkPredictor.encode", {"out_channels": 4})
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
        build(f"{FILE}:{name}", {})


def test_functions_are_themselves_again() -> None:
    """Whatever a module holds records while it is exported, and behind that is PyG's own."""
    from torch_geometric import utils

    before = inspect.getsource(utils.softmax), utils.degree(torch.tensor([1, 1]), 3).tolist()
    module, options = module_of(EXAMPLES, "adjacency turned")
    with pytest.raises(ModelError):
        export_module(module, **options)
    module, options = module_of(EXAMPLES, "sign")
    export_module(module, **options)
    after = inspect.getsource(utils.softmax), utils.degree(torch.tensor([1, 1]), 3).tolist()
    assert before == after
    assert utils.degree.__kwdefaults__ is None
