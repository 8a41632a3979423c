"""Graphs that modules keep, batches of graphs, and degrees of zero, as DGL's and PyG's users do."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.models.dgl_interop import load_dgl, why_no_dgl
from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE
from tests.support.models import shake
from tests.support.pyg import pyg

needs_dgl = pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")


def trained_on():
    """The graph of the training script, which the job's is not."""
    return load_dgl().graph(([0, 1, 2, 2], [1, 2, 0, 2]))


class Keeping(nn.Module):
    """DGL's examples of transductive learning: the graph is an argument of the constructor."""

    def __init__(self, graph=None, conv=None):
        super().__init__()
        self.g = trained_on() if graph is None else graph
        self.conv = conv or load_dgl().nn.SAGEConv(5, 4, "mean")

    def forward(self, features):
        return self.conv(self.g, features)


@needs_dgl
def test_a_graph_that_the_module_keeps_is_the_jobs() -> None:
    module = shake(Keeping())
    graph = module.g
    done = export_module(module)
    assert done.proof.largest_error <= TOLERANCE
    assert module.g is graph, "the user's module stays as it is"
    assert done.exported.program.input_width == 5


@needs_dgl
def test_parts_keep_the_same_graph() -> None:
    """Of which the parts' attributes are replaced as well."""

    class Stacked(nn.Module):
        def __init__(self):
            super().__init__()
            self.graph = trained_on()
            inner = load_dgl().nn.GraphConv(4, 3, allow_zero_in_degree=True)
            self.first, self.second = Keeping(self.graph), Keeping(self.graph, inner)

        def forward(self, features):
            return self.second(self.first(features).relu())

    assert export_module(shake(Stacked())).proof.largest_error <= TOLERANCE


@needs_dgl
def test_features_may_come_with_the_kept_graph() -> None:
    class Reading(Keeping):
        def forward(self):
            return self.conv(self.g, self.g.ndata["feat"])

    assert export_module(shake(Reading()), width=5).proof.largest_error <= TOLERANCE


@needs_dgl
def test_different_kept_graphs_are_refused() -> None:
    class Lines(Keeping):
        def __init__(self):
            super().__init__()
            self.line_graph = self.g.line_graph()

    with pytest.raises(ModelError, match=r"keeps different graphs, self\.g and self\.line_graph"):
        export_module(Lines())


@needs_dgl
def test_a_graph_beside_that_of_forward_is_left_alone() -> None:
    """As nothing shows that the two are the same: what forward is given is the job's."""

    class Both(Keeping):
        def forward(self, g, features):
            return self.conv(g, features) + self.g.num_nodes()

    done = export_module(shake(Both()))
    assert done.proof.largest_error <= TOLERANCE


class Batched(nn.Module):
    """PyG's way to embed nodes of several graphs: here all are of one."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = pyg.SAGEConv(5, 4), pyg.GraphNorm(4)

    def forward(self, x, edge_index, batch):
        h = self.norm(self.conv(x, edge_index), batch)
        return h + pyg.global_mean_pool(h, batch)


def test_a_batch_that_must_be_given_is_none() -> None:
    assert export_module(shake(Batched())).proof.largest_error <= TOLERANCE


class Sorting(Batched):
    def forward(self, x, edge_index, batch):
        return self.conv(x, edge_index)[batch.argsort()]


def test_a_batch_that_is_computed_with_is_explained() -> None:
    with pytest.raises(ModelError, match="batch is None, as PyG has it where all nodes"):
        export_module(Sorting())


@needs_dgl
def test_a_readout_of_whole_graphs_is_explained() -> None:
    class Readout(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.pool = Keeping().conv, load_dgl().nn.SumPooling()

        def forward(self, g, h):
            return self.pool(g, self.conv(g, h))

    with pytest.raises(ModelError, match=r"readouts of whole graphs.*return what the readout is"):
        export_module(Readout())


@needs_dgl
def test_a_module_that_divides_by_a_degree_of_zero() -> None:
    """DGL's example of DAGNN, on a graph where some node has no in-edges."""

    class Divides(Keeping):
        def forward(self, g, features):
            norm = torch.pow(g.in_degrees().float(), -0.5)
            return self.conv(g, features * norm.unsqueeze(1))

    told = r"The module itself gives NaN or Inf, first at .*\(pow\).*degrees\.clamp\(min=1\)"
    with pytest.raises(ModelError, match=told):
        export_module(shake(Divides()))


def test_a_module_that_normalises_edges_without_weights_alone() -> None:
    """As PyG's LabelPropagation does: weights that it is given are meant as they are."""
    module = pyg.LabelPropagation(num_layers=2, alpha=0.5)
    told = r"without edge weights.*With edge weights they agree.*leave the argument out of forward"
    with pytest.raises(ModelError, match=re.compile(told, re.DOTALL)):
        export_module(module, inputs={"y": "x"}, width=4)


def test_a_module_that_leaves_weights_out() -> None:
    class Unweighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.smooth = pyg.LabelPropagation(num_layers=2, alpha=0.5)

        def forward(self, x, edge_index):
            return self.smooth(x, edge_index)

    assert export_module(Unweighted(), width=4).proof.largest_error <= TOLERANCE
