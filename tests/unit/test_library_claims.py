"""What the documents say that PyTorch Geometric and DGL do, by running them.

That a job's fields do the same is tested by ``tests/distributed/test_library_graphs.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.library_graphs import Data, HeteroData, dgl, transforms, utils
from tests.support.pyg import pyg

NODES = 4
ENDS = torch.tensor([[0, 0, 1, 1, 1, 2, 0, 0], [0, 1, 1, 1, 2, 0, 1, 1]])
"""Node 0 has a self-loop, node 1 two, nodes 2 and 3 none; three edges lead from 0 to 1."""
WEIGHT = torch.tensor([5.0, 1.0, 3.0, 2.0, 4.0, 9.0, 7.0, 6.0])
FEATURES = torch.stack([WEIGHT, WEIGHT * 10], 1)

Edges = list[tuple[int, int, Any]]


def edges(ends: Any, carried: torch.Tensor) -> Edges:
    """(source, destination, weight or features) in order."""
    return sorted(zip(ends[0].tolist(), ends[1].tolist(), carried.tolist(), strict=True))


def a_graph() -> Any:
    graph = dgl.graph((ENDS[0], ENDS[1]), num_nodes=NODES)
    graph.edata["w"], graph.edata["f"] = WEIGHT, FEATURES
    return graph


OWN = edges(ENDS, WEIGHT)
OTHERS = [edge for edge in OWN if edge[0] != edge[1]]


@pytest.mark.parametrize("carried", [WEIGHT, FEATURES], ids=["weight", "features"])
def test_pyg_adds_one_more_loop_of_one_at_every_node(carried: torch.Tensor) -> None:
    ends, after = utils.add_self_loops(ENDS, carried, num_nodes=NODES)
    assert ends[:, len(carried) :].tolist() == [[0, 1, 2, 3]] * 2
    assert (after[len(carried) :] == 1).all()
    assert edges(ends[:, : len(carried)], after[: len(carried)]) == edges(ENDS, carried)
    data = Data(edge_index=ENDS, edge_weight=WEIGHT, num_nodes=NODES)
    added = transforms.AddSelfLoops()(data)
    assert edges(added.edge_index, added.edge_weight) == edges(
        *utils.add_self_loops(ENDS, WEIGHT, num_nodes=NODES)
    )


@pytest.mark.dgl
def test_dgl_adds_one_more_loop_of_one_at_every_node() -> None:
    graph = dgl.add_self_loop(a_graph())
    assert [ends[-NODES:].tolist() for ends in graph.edges()] == [[0, 1, 2, 3]] * 2
    assert (graph.edata["w"][-NODES:] == 1).all()
    assert (graph.edata["f"][-NODES:] == 1).all()
    assert edges([ends[:-NODES] for ends in graph.edges()], graph.edata["w"][:-NODES]) == OWN


def test_add_remaining_self_loops_keeps_the_last_of_several_and_adds_the_missing() -> None:
    expected = sorted([*OTHERS, (0, 0, 5.0), (1, 1, 2.0), (2, 2, 1.0), (3, 3, 1.0)])
    assert edges(*utils.add_remaining_self_loops(ENDS, WEIGHT, num_nodes=NODES)) == expected
    data = Data(edge_index=ENDS, edge_weight=WEIGHT, num_nodes=NODES)
    added = transforms.AddRemainingSelfLoops()(data)
    assert edges(added.edge_index, added.edge_weight) == expected


@pytest.mark.dgl
def test_dgls_transform_replaces_self_loops() -> None:
    expected = sorted([*OTHERS, *((node, node, 1.0) for node in range(NODES))])
    for change in (dgl.AddSelfLoop(), lambda graph: dgl.add_self_loop(dgl.remove_self_loop(graph))):
        graph = change(a_graph())
        assert edges(graph.edges(), graph.edata["w"]) == expected


def test_pyg_sums_what_parallel_edges_carry() -> None:
    summed = [(0, 0, 5.0), (0, 1, 14.0), (1, 1, 5.0), (1, 2, 4.0), (2, 0, 9.0)]
    assert edges(*utils.coalesce(ENDS, WEIGHT)) == summed
    data = Data(edge_index=ENDS, edge_attr=WEIGHT, num_nodes=NODES)
    thinned = transforms.RemoveDuplicatedEdges()(data.clone())
    assert edges(thinned.edge_index, thinned.edge_attr) == summed
    largest = [(0, 0, 5.0), (0, 1, 7.0), (1, 1, 3.0), (1, 2, 4.0), (2, 0, 9.0)]
    assert edges(*utils.coalesce(ENDS, WEIGHT, reduce="max")) == largest


def test_to_undirected_sums_too_and_doubles_self_loops() -> None:
    both = [(0, 0, 10.0), (0, 1, 14.0), (0, 2, 9.0), (1, 0, 14.0), (1, 1, 10.0), (1, 2, 4.0)]
    both += [(2, 0, 9.0), (2, 1, 4.0)]
    assert edges(*utils.to_undirected(ENDS, WEIGHT)) == both
    data = Data(edge_index=ENDS, edge_attr=WEIGHT, num_nodes=NODES)
    turned = transforms.ToUndirected()(data)
    assert edges(turned.edge_index, turned.edge_attr) == both


def test_to_undirected_makes_a_reverse_type_between_node_types_alone() -> None:
    data = HeteroData()
    data["user"].num_nodes = data["item"].num_nodes = NODES
    for relation in (("user", "buys", "item"), ("user", "follows", "user")):
        data[relation].edge_index, data[relation].edge_attr = ENDS, WEIGHT
    turned = transforms.ToUndirected()(data)
    assert turned.edge_types == [
        ("user", "buys", "item"), ("user", "follows", "user"), ("item", "rev_buys", "user"),
    ]  # fmt: skip
    back = turned["item", "rev_buys", "user"]
    assert edges(back.edge_index, back.edge_attr) == edges(ENDS.flip(0), WEIGHT)
    own = turned["user", "follows", "user"]
    assert edges(own.edge_index, own.edge_attr) == edges(*utils.to_undirected(ENDS, WEIGHT))


@pytest.mark.dgl
def test_add_reverse_edges_leaves_self_loops_single() -> None:
    graph = dgl.add_reverse_edges(a_graph(), copy_edata=True)
    other = ENDS[0] != ENDS[1]
    assert edges(graph.edges(), graph.edata["w"]) == sorted(
        OWN + edges(ENDS.flip(0)[:, other], WEIGHT[other])
    )


@pytest.mark.dgl
def test_to_simple_keeps_the_first_and_to_bidirected_no_data() -> None:
    first = [(0, 0, 5.0), (0, 1, 1.0), (1, 1, 3.0), (1, 2, 4.0), (2, 0, 9.0)]
    graph = dgl.to_simple(a_graph(), copy_edata=True)
    assert edges(graph.edges(), graph.edata["w"]) == first
    bare = dgl.to_bidirected(a_graph())
    assert not bare.edata
    assert edges(bare.edges(), torch.zeros(bare.num_edges())) == edges(
        utils.to_undirected(ENDS), torch.zeros(8)
    )


@pytest.mark.parametrize("conv", [pyg.GCNConv, pyg.GATConv])
def test_pygs_convolutions_add_self_loops(conv: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    module, rows = conv(3, 5), torch.randn(NODES, 3)
    looped = utils.add_remaining_self_loops(ENDS, num_nodes=NODES)[0]
    assert torch.allclose(module(rows, ENDS), module(rows, looped), atol=1e-6)
    module.add_self_loops = False
    assert not torch.allclose(module(rows, ENDS), module(rows, looped), atol=1e-3)


@pytest.mark.dgl
@pytest.mark.parametrize("conv", ["GraphConv", "GATConv"])
def test_dgls_convolutions_add_none(conv: str) -> None:
    torch.manual_seed(0)
    options = {"num_heads": 1} if conv == "GATConv" else {"norm": "none"}
    module, rows = getattr(dgl.nn, conv)(3, 5, **options, bias=False), torch.randn(NODES, 3)
    chain = dgl.graph(([0, 1], [1, 2]), num_nodes=NODES)
    with pytest.raises(dgl.DGLError, match="0-in-degree nodes"):
        module(chain, rows)
    module.set_allow_zero_in_degree(True)
    assert not module(chain, rows)[0].any()
