"""Plans read from PyG's own modules give what those modules give on the whole graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from embertide.models.after import fold_batch_norm
from embertide.models.reference import run_reference
from embertide.program.steps import Linear
from tests.support.conv_cases.case import FOLDED
from tests.support.conv_cases.comparing import assert_exact_example
from tests.support.conv_cases.models import PYG_MODELS
from tests.support.models import GRAPHS, assert_same, features, program_of, run_program, shake
from tests.support.pyg import pyg


@pytest.mark.parametrize("improved", [False, True])
def test_edge_weight_false_ignores_the_weights_of_the_graph(improved: bool) -> None:
    module = shake(nn.ModuleDict({"conv": pyg.GCNConv(5, 4, improved=improved)}))
    program = program_of(
        "library: pyg\nlayers:"
        f" [{{conv: gcn, edge_weight: false, improved: {str(improved).lower()}}}]",
        module,
    )
    graph, x = GRAPHS["directed"], features(5)
    with torch.no_grad():
        expected = module.double()["conv"](x, torch.stack([graph.src, graph.dst]))
    assert_same(run_program(program, graph, x, weighted=True), expected)


@pytest.mark.parametrize("tracked", [False, True])
def test_an_instance_norm_with_parameters_says_where_they_are(tracked: bool) -> None:
    """Of the graph's own statistics, and of stored ones."""
    conv = pyg.GCNConv(5, 4)
    norm = pyg.InstanceNorm(4, affine=True, track_running_stats=tracked)
    module = shake(nn.ModuleDict({"conv": conv, "norm": norm}))
    tells = f"track_running_stats: {str(tracked).lower()}"
    program = program_of(
        "library: pyg\nlayers: [{conv: gcn, graph_norm:"
        f" {{kind: instance, prefix: norm, affine: true, {tells}}}}}]",
        module,
    )
    graph, x = GRAPHS["directed"], features(5)
    with torch.no_grad():
        both = module.double()
        expected = both["norm"](both["conv"](x, torch.stack([graph.src, graph.dst])))
    assert_same(run_program(program, graph, x, weighted=False), expected, FOLDED)


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", PYG_MODELS)
def test_whole_models(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_exact_example("pyg", PYG_MODELS[name], kind, monkeypatch)


def test_the_heaviest_of_several_loops_counts() -> None:
    src, dst = torch.tensor([0, 1, 1, 1, 2]), torch.tensor([1, 1, 1, 0, 0])
    weight = torch.tensor([0.5, 3.0, 0.25, 0.75, 1.5])
    module = shake(nn.ModuleDict({"conv": pyg.GCNConv(5, 4)}))
    program = program_of("library: pyg\nlayers: [{conv: gcn}]", module)
    x = features(5)[:3]
    with torch.no_grad():
        # PyG takes the last of several, so they come to it in order of weight.
        edges, weights = torch.stack([src, dst]), weight.double()
        ascending = weights.argsort()
        expected = module.double()["conv"](x, edges[:, ascending], weights[ascending])
    assert_same(run_reference(program, [(src, dst, weight)], x), expected)


@pytest.mark.parametrize("names", [("lin_src",), ("lin_src", "lin_dst")])
def test_names_of_gat_before_pyg_2_5(names: tuple[str, ...]) -> None:
    module = shake(pyg.GATConv(5, 4, heads=3))
    tensors = dict(module.state_dict())
    weight = tensors.pop("lin.weight")
    tensors |= {f"{name}.weight": weight for name in names}
    program = program_of("library: pyg\nlayers: [{conv: gat}]", tensors)
    assert sum(isinstance(step, Linear) for step in program.steps) == 1
    graph, x = GRAPHS["directed"], features(5)
    with torch.no_grad():
        expected = module.double()(x, torch.stack([graph.src, graph.dst]))
    assert_same(run_program(program, graph, x, weighted=False), expected)


def test_products_come_first_where_that_is_cheaper() -> None:
    def kinds(conv: str, module: nn.Module) -> list[str]:
        program = program_of(f"library: pyg\nlayers: [{{{conv}}}]", module)
        return [type(step).__name__ for step in program.steps]

    assert kinds("conv: gcn", pyg.GCNConv(8, 4)) == ["Linear", "Aggregate", "Affine"]
    assert kinds("conv: gcn", pyg.GCNConv(4, 4)) == ["Linear", "Aggregate", "Affine"]
    assert kinds("conv: gcn", pyg.GCNConv(4, 8)) == ["Aggregate", "Linear"]
    after = ["Aggregate", "Linear", "Linear", "Combine"]
    assert kinds("conv: sage", pyg.SAGEConv(4, 8)) == after
    assert kinds("conv: sage, aggr: max", pyg.SAGEConv(8, 4, aggr="max")) == after
    assert kinds("conv: gat", pyg.GATConv(8, 4)) == [
        "Linear",
        "HeadDot",
        "HeadDot",
        "Attend",
        "Affine",
    ]


def test_batch_norm_is_folded_in_float64() -> None:
    norm = shake(nn.BatchNorm1d(6, eps=1e-3)).double()
    scale, shift = fold_batch_norm(
        norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    x = features(6)
    with torch.no_grad():
        assert_same(x * scale + shift, norm(x), 1e-14)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("relu", functional.relu),
        ("elu", functional.elu),
        ("leaky_relu", functional.leaky_relu),
        ("gelu", functional.gelu),
        ("gelu_tanh", lambda x: functional.gelu(x, approximate="tanh")),
        ("silu", functional.silu),
        ("tanh", torch.tanh),
        ("sigmoid", torch.sigmoid),
        ("softplus", functional.softplus),
        ("{kind: leaky_relu, slope: 0.3}", lambda x: functional.leaky_relu(x, 0.3)),
        ("{kind: elu, slope: 0.3}", lambda x: functional.elu(x, 0.3)),
    ],
)
def test_activations(kind: str, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    module = shake(pyg.SAGEConv(5, 4))
    program = program_of(f"library: pyg\nlayers: [{{conv: sage, activation: {kind}}}]", module)
    graph, x = GRAPHS["directed"], features(5)
    with torch.no_grad():
        expected = function(module.double()(x, torch.stack([graph.src, graph.dst])))
    assert_same(run_program(program, graph, x, weighted=False), expected)
