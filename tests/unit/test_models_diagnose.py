"""Mistakes that a description can make without any name or shape showing it are found."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from embertide.edge.check.diagnose import Difference, first_difference
from embertide.models.read import read_files
from embertide.models.reference import run_reference
from tests.support.models import GRAPHS, Files, features, shake
from tests.support.pyg import pyg

ROWS = torch.tensor([30, 2, 17, 5, 9])


class Model(nn.Module):
    """relu(norm(sage max)), then relu(sage mean) + Linear, then gcn."""

    def __init__(self) -> None:
        super().__init__()
        self.conv0 = pyg.SAGEConv(5, 8, aggr="max")
        self.norm0 = nn.LayerNorm(8)
        self.conv1 = pyg.SAGEConv(8, 6, normalize=True)
        self.link = nn.Linear(8, 6)
        self.conv2 = pyg.SAGEConv(6, 4)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = self.norm0(self.conv0(x, edges)).relu()
        x = self.conv1(x, edges).relu() + self.link(x)
        return self.conv2(x, edges)


RIGHT = """library: pyg
layers:
  - {conv: sage, aggr: max, layer_norm: true, activation: relu}
  - {conv: sage, normalize: true, activation: relu, skip: {linear: link}}
  - {conv: sage}
"""


def difference(yaml: str, rows: torch.Tensor = ROWS, columns: int = 4) -> Difference | None:
    module, data = shake(Model()), io.BytesIO()
    torch.save(module.state_dict(), data)
    files = Files({"file:///m/model.yaml": yaml.encode(), "file:///m/model.pt": data.getvalue()})
    graph, x = GRAPHS["directed"], features(5)
    with torch.no_grad():
        expected = module.double()(x, torch.stack([graph.src, graph.dst]))[rows, :columns]
    graphs = [graph.layer(weighted=False)] * 3
    return first_difference(
        read_files(files, "file:///m"),
        lambda program: run_reference(program, graphs, x)[rows],
        expected.float(),
    )


def test_a_right_description_agrees() -> None:
    assert difference(RIGHT) is None


@pytest.mark.tier(2)
@pytest.mark.parametrize(
    ("right", "wrong", "layer", "fix"),
    [
        (
            ", activation: relu}\n  - {conv: sage, n",
            "}\n  - {conv: sage, n",
            0,
            "with activation: relu",
        ),
        (
            "layer_norm: true, activation: relu",
            "layer_norm: true, activation: elu",
            0,
            "with activation: relu",
        ),
        (
            "layer_norm: true, activation: relu",
            "layer_norm: {mode: graph}, activation: relu",
            0,
            "with layer_norm: {mode: node}",
        ),
        ("aggr: max, ", "", 0, "with aggr: max"),
        ("normalize: true, ", "", 1, "with normalize: true"),
        ("{conv: sage}", "{conv: sage, normalize: true}", 2, "with normalize: false"),
        ("{conv: sage}", "{conv: sage, activation: relu}", 2, "without activation"),
        (
            "skip: {linear: link}",
            "skip: {linear: link}, order: [skip, activation]",
            1,
            "with order: [activation, skip]",
        ),
    ],
)
def test_a_wrong_option_is_named(right: str, wrong: str, layer: int, fix: str) -> None:
    assert RIGHT.count(right) == 1
    found = difference(RIGHT.replace(right, wrong))
    assert found is not None
    assert found.layer == layer
    assert found.error > 1e-3
    assert f"layers[{layer}] (sage) {fix}" in map(str, found.fixes)
    assert found.nearest is None


def test_two_mistakes_are_not_explained_by_one_option() -> None:
    found = difference(RIGHT.replace("aggr: max, ", "").replace("normalize: true, ", ""))
    assert found is not None
    assert (found.layer, found.fixes) == (None, ())
    assert found.nearest is not None
    assert found.nearest.error < found.error
    assert 0 <= found.row < len(ROWS)


def test_an_activation_that_all_hidden_layers_lack() -> None:
    found = difference(RIGHT.replace(", activation: relu", ""))
    assert found is not None
    assert "layers[0] (sage), layers[1] (sage), each with activation: relu" in map(str, found.fixes)


def test_vectors_of_another_width() -> None:
    found = difference(RIGHT, columns=3)
    assert found is not None
    assert found.error == float("inf")
    assert (found.fixes, found.nearest) == ((), None)
