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


ONE = {"conv.lin.weight": torch.ones(4, 5), "conv.bias": torch.ones(4)}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"head.weight": torch.ones(3, 4), "head.bias": torch.ones(3)},
            "head looks like a Linear from 4 to 3 columns. If the embeddings pass through it",
        ),
        (
            {"link.weight": torch.ones(4, 5)},
            "{conv: linear, prefix: link, bias: false}; if a layer adds its result, as"
            " skip: {linear: link}",
        ),
        (
            {"norm.weight": torch.ones(4), "norm.bias": torch.ones(4)},
            "norm looks like a layer norm over 4 columns; the layer before it says"
            " layer_norm: {prefix: norm}",
        ),
        ({"act.weight": torch.ones(1)}, "activation: {kind: prelu, prefix: act}"),
        (
            {"emb.weight": torch.ones(7, 5)},
            "emb.weight [7, 5] looks like an embedding table, 5 columns for each of 7 nodes",
        ),
        ({"nodes.weight": torch.ones(900, 5)}, "5 columns for each of 900 nodes"),
        (
            {"jk.lstm.weight_ih_l0": torch.ones(8, 4), "jk.lstm.weight_hh_l0": torch.ones(8, 2)},
            "jk.lstm looks like a recurrent network: JumpingKnowledge's is"
            " {conv: jumping_knowledge, mode: lstm, prefix: jk}",
        ),
        (
            {f"norm.{name}": torch.ones(4) for name in ("weight", "bias", "mean_scale")},
            "norm looks like a graph norm over 4 columns; the layer before it says"
            " graph_norm: {prefix: norm}",
        ),
        ({"conv.lin_edge.weight": torch.ones(4, 2)}, "edge_dim: (its columns) makes a layer read"),
    ],
)
def test_what_is_left_over_is_said_to_be_what_it_looks_like(
    more: dict[str, torch.Tensor], says: str
) -> None:
    message = refusal("library: pyg\nlayers: [{conv: gcn}]", ONE | more)
    assert says in message
    assert "other embeddings than the model's would be published" in message


def test_what_lies_in_a_layers_own_module_is_not_offered_as_a_layer() -> None:
    inside = {"conv.nn.2.weight": torch.ones(4, 4), "conv.nn.2.bias": torch.ones(4)}
    message = refusal("library: pyg\nlayers: [{conv: gcn}]", ONE | inside)
    assert "conv.nn.2 belongs to layer 0, gcn, which does not read it" in message
    assert "conv: linear" not in message


def test_a_linear_beside_graph_convolutions_of_dgl_is_not_taken_for_one() -> None:
    tensors = {
        "layers.0.weight": torch.ones(5, 8),
        "layers.0.bias": torch.ones(8),
        "output.weight": torch.ones(3, 8),
        "output.bias": torch.ones(3),
    }
    message = refusal("library: dgl\nlayers: [{conv: gcn}]", tensors)
    assert "output looks like a Linear from 8 to 3 columns" in message
    layers = "[{conv: gcn}, {conv: linear, prefix: output}]"
    assert program_of(f"library: dgl\nlayers: {layers}", tensors).output_width == 3
    tensors |= {"output.weight": torch.ones(8, 8), "output.bias": torch.ones(8)}
    message = refusal("library: dgl\nlayers: [{conv: gcn}]", tensors)
    assert "candidates: output, layers.0" in message
    assert "{conv: linear, prefix: ...}" in message
    assert program_of(f"library: dgl\nlayers: {layers}", tensors).output_width == 8


@pytest.mark.parametrize(
    ("library", "layer", "says"),
    [
        (
            "pyg",
            "conv: sage, edge_dim: 1",
            "edge_dim: is no field of this layer: features of edges",
        ),
        ("dgl", "conv: gat, edge_feats: 1", "and by DGL's edge_gat and gine"),
        ("pyg", "conv: gat, fill_value: add", "fill_value: is for layers with edge_dim; remove it"),
        ("pyg", "conv: sage, edge_wieght: false", "edge_wieght: unknown field; allowed: conv,"),
        ("pyg", "conv: gcn, edge_wieght: false", "did you mean 'edge_weight'?"),
        ("dgl", "conv: dotgat, num_heads: 2, bais: false", "bais: unknown field; allowed: conv,"),
        ("dgl", "conv: gat, feat_drop: 0.5", "feat_drop: has no effect on inference; remove it"),
        ("pyg", "conv: gcn, in_channels: 5", "in_channels: is read from the weights; remove it"),
        ("pyg", "conv: gcn, jk: cat", "jk: is written as a layer after the last one"),
        ("pyg", "conv: propagate, k: 2", "k: unknown field; did you mean 'K'?"),
        ("pyg", "conv: propagate, K: 2, prefix: a", "prefix: propagate has no parameters; remove"),
        ("pyg", "conv: GCNConv", "conv: is 'GCNConv'; for pyg Embertide supports agnn, appnp,"),
        ("pyg", "conv: GCNConv", "(did you mean 'gcn'?)"),
        ("dgl", "conv: GraphConv", "(did you mean 'gcn'?)"),
        ("dgl", "conv: APPNPConv", "(did you mean 'appnp'?)"),
        ("dgl", "conv: ChebConv", "(did you mean 'cheb'?)"),
        ("pyg", "conv: GraphConv", "(did you mean 'graph'?)"),
        ("pyg", "conv: GCNII", "(did you mean 'gcn2'?)"),
        ("pyg", "conv: gcn, flow: source_to_target", "flow: is set in the job: spec.input.edges"),
        (
            "pyg",
            "conv: gcn2, x_0: 0, alpha: 0.1",
            "x_0: is 0; must be the number of a layer before",
        ),
        ("pyg", "conv: gcn2, x_0: x, alpha: 0.1", "must be input, or the number of an earlier"),
        (
            "pyg",
            "conv: gcn2, x_0: input, alpha: 0.1, theta: 0.5",
            "layer: must be given, too: theta and layer belong together",
        ),
        (
            "pyg",
            "conv: fa, x_0: input, normalize: false",
            "edge_weight: must be true where normalize is false",
        ),
        ("pyg", "conv: cheb, normalization: null", "scales by the graph's largest degree"),
        (
            "dgl",
            "conv: gcn, edge_weight_norm: both",
            "edge_weight_norm: must not be given beside norm: both",
        ),
        ("dgl", "conv: propagate, k: 2", "norm: is required: which degrees divide"),
        (
            "dgl",
            "conv: propagate, k: 2, norm: both, edge_weight: true",
            "edge_weight: propagation over edge weights (DGL's EdgeWeightNorm) is not supported",
        ),
        ("dgl", "conv: linear", "prefix: is required: name of the Linear in the weights"),
        ("dgl", "conv: linear, prefix: a, edge_weight: true", "a linear layer reads no edges"),
        ("dgl", "conv: jumping_knowledge, mode: cat", "joins earlier layers; there is none"),
        (
            "dgl",
            "conv: gcn}, {conv: jumping_knowledge, mode: lstm",
            "layers[1].prefix: is required: name of the module with the LSTM in the weights",
        ),
        (
            "pyg",
            "conv: gcn}, {conv: jumping_knowledge, mode: max, prefix: jk",
            "layers[1].prefix: mode: max has no parameters; remove it",
        ),
        (
            "dgl",
            "conv: jumping_knowledge, mode: cat, layers: [input, 0]",
            "layers[0].layers[1]: is 0; must be the number of a layer before 0",
        ),
        (
            "dgl",
            "conv: jumping_knowledge, mode: cat, layers: [all]",
            "layers[0].layers: is ['all']; must list numbers of earlier layers, or input",
        ),
    ],
)
def test_suggestions_name_what_is_accepted(library: str, layer: str, says: str) -> None:
    assert says in refusal(f"library: {library}\nlayers: [{{{layer}}}]", {})


def test_fields_that_may_only_repeat_their_default_are_not_suggested() -> None:
    for layer in ("conv: sage, edge_weigth: true", "conv: propagate, K: 2, prefiks: a"):
        message = refusal(f"library: pyg\nlayers: [{{{layer}}}]", {})
        assert "unknown field; allowed: conv," in message
        assert "did you mean" not in message


def test_the_maximum_of_different_widths() -> None:
    module = shake(pyg.GCN(5, 8, 2, 4))
    layers = "[{conv: gcn}, {conv: gcn}, {conv: jumping_knowledge, mode: max}]"
    message = refusal(f"library: pyg\nlayers: {layers}", module)
    assert "layers of equal widths  (layer 2, jumping_knowledge)  8, 4" in message
