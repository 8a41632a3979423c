"""Graphs as PyTorch Geometric and DGL have them, and back."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from tests.support.dgl_library import dgl
from tests.support.world import Graph

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch_geometric import transforms, utils
    from torch_geometric.data import Data, HeteroData

__all__ = ["Data", "HeteroData", "dgl", "from_dgl", "from_pyg", "to_dgl", "transforms", "utils"]


def from_pyg(function: Callable[..., Any], graph: Graph, **options: Any) -> Graph:
    """The graph after a function of `torch_geometric.utils`; weights come before features."""
    ends, carried = _tensors(graph)
    if carried is None:
        options.pop("reduce", None)
    if function not in (utils.remove_self_loops,):
        options["num_nodes"] = graph.nodes
    result = function(ends, carried, **options)
    ends, carried = (result, None) if isinstance(result, torch.Tensor) else result
    return _graph(graph, ends[0], ends[1], carried)


def to_dgl(graph: Graph) -> Any:
    """The same graph in DGL, with what edges carry as its ``edata["carried"]``."""
    ends, carried = _tensors(graph)
    made = dgl.graph((ends[0], ends[1]), num_nodes=graph.nodes)
    if carried is not None:
        made.edata["carried"] = carried
    return made


def from_dgl(graph: Any, before: Graph) -> Graph:
    """A graph of DGL whose edges carry what those of ``before`` do."""
    return _graph(before, *graph.edges(), graph.edata.get("carried"))


def _tensors(graph: Graph) -> tuple[torch.Tensor, torch.Tensor | None]:
    """[2, E] the ends, and [E, K] what edges carry; [E] where that is a weight alone."""
    ends = torch.stack([torch.from_numpy(graph.src), torch.from_numpy(graph.dst)])
    columns = [] if graph.weight is None else [torch.from_numpy(graph.weight)[:, None]]
    columns += [] if graph.features is None else [torch.from_numpy(graph.features)]
    if not columns:
        return ends, None
    return ends, columns[0][:, 0] if graph.features is None else torch.cat(columns, 1)


def _graph(
    before: Graph, src: torch.Tensor, dst: torch.Tensor, carried: torch.Tensor | None
) -> Graph:
    columns = None if carried is None else carried.reshape(len(src), -1).numpy()
    weight = None if before.weight is None or columns is None else columns[:, 0]
    first = 0 if before.weight is None else 1
    features = None if before.features is None or columns is None else columns[:, first:]
    return Graph(src.numpy(), dst.numpy(), weight, before.nodes, features)
