"""Each tensor that a module reads is one of the job's own: no two of them become one in silence."""

from __future__ import annotations

import pytest
from torch import nn

from embertide.errors import ModelError
from embertide.models.dgl_interop import load_dgl, why_no_dgl
from embertide.tracing.export import export_module
from embertide.tracing.record.graphs import GraphTypes
from tests.support.models import shake
from tests.support.pyg import pyg

needs_dgl = pytest.mark.skipif(why_no_dgl() != "", reason=f"DGL's modules: {why_no_dgl()}")


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(5, 3)


class Positions(Base):
    """Features and a positional encoding, as two arguments."""

    def forward(self, x, edge_index, pe):
        return self.conv(x + pe, edge_index)


class Optional(Base):
    def forward(self, x, edge_index, pe=None):
        return self.conv(x if pe is None else x + pe, edge_index)


@pytest.mark.parametrize("make", [Positions, Optional])
def test_two_arguments_with_one_role(make: type[nn.Module]) -> None:
    told = r"forward takes x and pe, and both are the job's x; a job has one such tensor"
    with pytest.raises(ModelError, match=told):
        export_module(make(), inputs={"pe": "x"})


def test_an_argument_of_no_known_role() -> None:
    with pytest.raises(ModelError, match=r"needs pe, and its name does not show what it is"):
        export_module(Positions())


class Trained(Base):
    """A table of the nodes that it was trained on, which no option names."""

    def __init__(self) -> None:
        super().__init__()
        self.known = nn.Embedding(50, 5)

    def forward(self, x, edge_index):
        return self.conv(x + self.known.weight, edge_index)


def test_rows_of_one_graph_are_named() -> None:
    told = r"must match the size of tensor b \(50\).*\(known\.weight has as many rows; .*--table"
    with pytest.raises(ModelError, match=told):
        export_module(Trained())


class Swapped(nn.Module):
    """Two tables of as many columns."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(50, 5), nn.Embedding(60, 5)
        relations = ("user", "buys", "item"), ("item", "of", "user")
        self.conv = pyg.HeteroConv({one: pyg.SAGEConv((5, 5), 3) for one in relations})

    def forward(self, edge_index_dict):
        x_dict = {"user": self.users.weight, "item": self.items.weight}
        return self.conv(x_dict, edge_index_dict)


def test_tables_of_each_other_s_types() -> None:
    types = GraphTypes({"user": 0, "item": 0}, ("user:buys:item", "item:of:user"))
    export_module(shake(Swapped()), graph=types, tables={"user": "users", "item": "items"})
    with pytest.raises(ModelError, match="features of item and user, but user:buys:item leads"):
        export_module(Swapped(), graph=types, tables={"user": "items", "item": "users"})


# ---- the same in a graph of DGL's


class Frames(nn.Module):
    """A convolution of DGL's, and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = load_dgl().nn.pytorch.SAGEConv(5, 3, "mean")
        self.table = nn.Embedding(50, 5)


class FeaturesTwice(Frames):
    def forward(self, g, h):
        return self.conv(g, h + g.ndata["pe"])


class WeightsTwice(Frames):
    def forward(self, g, h, edge_weight):
        fn = load_dgl().function
        with g.local_scope():
            g.ndata["h"], g.edata["e"] = h, edge_weight * g.edata["w"]
            g.update_all(fn.u_mul_e("h", "e", "m"), fn.sum("m", "sum"))
            return g.ndata["sum"]


class TableAndFeatures(Frames):
    def forward(self, g):
        return self.conv(g, self.table.weight + g.ndata["feat"])


class NumbersBeside(Frames):
    """The nodes' numbers as DGL keeps them in a subgraph, beside features."""

    def forward(self, g):
        node_id = g.ndata[load_dgl().NID]
        return self.conv(g, self.table(node_id) + g.ndata["feat"])


class ManyEdges(Frames):
    def forward(self, g, h):
        return self.conv(g, h) * (2 if g.num_edges() > 100_000 else 1)


class ManyNodes(Frames):
    def forward(self, g, h):
        return self.conv(g, h) * (2 if g.number_of_nodes() > 100_000 else 1)


@needs_dgl
@pytest.mark.parametrize("make", [ManyNodes, ManyEdges])
def test_a_branch_on_numbers_of_dgl(make: type[nn.Module]) -> None:
    with pytest.raises(ModelError, match=r"py:\d+: what is done depends on the number of nodes or"):
        export_module(make(), width=5)


class Numbers(Frames):
    def forward(self, g):
        return self.conv(g, self.table(g.ndata["id"]))


@needs_dgl
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (FeaturesTwice, r"takes h and reads g\.ndata\['pe'\], and both are the job's x"),
        (WeightsTwice, r"takes edge_weight and reads g\.edata\['w'\], and both are the job's"),
    ],
)
def test_an_argument_and_a_frame_of_dgl(make: type[nn.Module], told: str) -> None:
    with pytest.raises(ModelError, match=told):
        export_module(make(), width=5)


@needs_dgl
def test_a_table_and_a_frame_of_dgl() -> None:
    for make in (TableAndFeatures, Numbers, NumbersBeside):
        done = export_module(shake(make()), tables={"": "table"})
        assert done.proof.largest_error <= done.proof.tolerance


@needs_dgl
def test_a_graph_of_dgl_with_no_features_and_no_table() -> None:
    types = GraphTypes({"user": 0}, ("user:follows:user",))
    with pytest.raises(ModelError, match=r"py:\d+: conv \(SAGEConv\).*name a table by --table"):
        export_module(WithoutTable(), graph=types)


class WithoutTable(Frames):
    def forward(self, g):
        return self.conv(g, self.table.weight)
