"""What model.yaml's errors suggest is accepted, and gives the model's own embeddings."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from tests.support.models import GRAPHS, assert_same, features, program_of, run_program, shake
from tests.support.pyg import pyg


def refusal(yaml: str, module: nn.Module | dict[str, torch.Tensor]) -> str:
    with pytest.raises(ModelError) as caught:
        program_of(yaml, module)
    return str(caught.value)


class Wrapped(nn.Module):
    """A model whose parameters lie under ``m``."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.m = inner


INNER = "  - {conv: gcn, activation: relu}\n"


@pytest.mark.parametrize("conv", ["gcn", "sage"])
def test_jumping_knowledge_is_named_and_the_hint_gives_the_embeddings(conv: str) -> None:
    make = pyg.GCN if conv == "gcn" else pyg.GraphSAGE
    module = shake(Wrapped(make(5, 8, 3, 4, jk="cat")))
    yaml = "library: pyg\nlayers:\n" + INNER.replace("gcn", conv) * 3
    message = refusal(yaml, module)
    assert "m.lin looks like a Linear from 24 to 4 columns" in message
    assert "Its 24 columns are those of layers 0 to 2 together" in message
    assert "wrong for anything else" in message
    hints = re.findall(r"\{conv: (?:jumping_knowledge|linear)[^}]*\}", message)
    assert sorted(hints) == [
        "{conv: jumping_knowledge, mode: cat}",
        "{conv: linear, prefix: m.lin}",
    ]
    more = "".join(f"  - {hint}\n" for hint in sorted(hints))
    graph, x = GRAPHS["directed"], features(5)
    with torch.no_grad():
        expected = module.double().m(x, torch.stack([graph.src, graph.dst]))
    assert_same(run_program(program_of(yaml + more, module), graph, x, weighted=False), expected)


def test_a_name_of_another_release_is_explained() -> None:
    state = shake(pyg.GCN(5, 8, 2, 4)).state_dict()
    old = {
        name.replace("lin.weight", "weight"): value.t() if "lin" in name else value
        for name, value in state.items()
    }
    layers = (
        "  - {conv: gcn, prefix: convs.0, activation: relu}\n  - {conv: gcn, prefix: convs.1}\n"
    )
    message = refusal(f"library: pyg\nlayers:\n{layers}", old)
    assert (
        "convs.0.lin.weight: another release of PyG has it as convs.0.weight, transposed (and 1"
        " more alike); convert the file by state['convs.0.lin.weight'] ="
        " state['convs.0.weight'].t()"
    ) in message
    assert "ignore" not in message


def test_batch_norms_of_pyg_are_found_by_their_own_name() -> None:
    module = shake(pyg.GCN(5, 8, 2, 4, norm="batch_norm"))
    yaml = "library: pyg\nlayers:\n  - {{conv: gcn{}, activation: relu}}\n  - {{conv: gcn}}\n"
    message = refusal(yaml.format(""), module)
    assert "norms.0 looks like a batch norm over 8 columns" in message
    hint = "batch_norm: {prefix: norms.0}"
    assert f"the layer before it says {hint}. Left out" in message
    assert "norms.0.module.weight" in module.state_dict()
    graph, x = GRAPHS["directed"], features(5)
    with torch.no_grad():
        expected = module.double()(x, torch.stack([graph.src, graph.dst]))
    for prefix in ("norms.0", "norms.0.module"):
        program = program_of(yaml.format(f", batch_norm: {{prefix: {prefix}}}"), module.float())
        assert_same(run_program(program, graph, x, weighted=False), expected, 1e-6)


def test_batch_norms_in_gins_function_are_found_by_their_own_name() -> None:
    module = shake(nn.ModuleDict({"conv": pyg.GINConv(pyg.MLP([5, 8, 4]))}))
    names = "[{linear: lins.0}, {batch_norm: norms.0}, relu, {linear: lins.1}]"
    program = program_of(f"library: pyg\nlayers: [{{conv: gin, mlp: {names}}}]", module)
    assert program.output_width == 4


@pytest.mark.parametrize("rows", [3, 8])
def test_a_linear_beside_graph_convolutions_of_dgl_is_taken_as_one(rows: int) -> None:
    tensors = {
        "layers.0.weight": torch.ones(5, 8),
        "layers.0.bias": torch.ones(8),
        "output.weight": torch.ones(rows, 8),
        "output.bias": torch.ones(rows),
    }
    layers = "[{conv: gcn}, {conv: linear, prefix: output}]"
    assert program_of(f"library: dgl\nlayers: {layers}", tensors).output_width == rows
