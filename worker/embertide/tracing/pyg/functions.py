"""PyG's functions of an ``edge_index`` that a user's own code calls: self-loops, degrees, sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from embertide.tracing.record.edges import Edges
from embertide.tracing.record.one_graph import DENSE, OneGraph
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import (
    edges_of,
    is_features,
    is_of_several,
    is_weight,
    shaped,
    target_of,
)
from embertide.tracing.record.scatter import ends_of, summed
from embertide.tracing.record.self_loops import Change, View
from embertide.tracing.record.traced import Traced, plain
from embertide.tracing.record.user_code import here, refuse

Function = Callable[..., Any]
_FILLS = ("add", "mean", "min", "max", "mul")
_UNDIRECTED = "say directed: false in the manifest, and leave the call out"
_OTHERS = "change the job's edges before, and give the module these"
NEAR = ("knn_graph", "radius_graph", "knn", "radius")
"""Functions of `torch_geometric.nn.pool` that make edges."""
REFUSED: dict[str, str] = {
    "to_undirected": f"to_undirected adds the edges the other way; {_UNDIRECTED}",
    "is_undirected": "is_undirected looks at all edges; decide by an argument of the module",
    "to_dense_adj": "to_dense_adj makes a matrix of all pairs of nodes; use a convolution, or"
    " propagate, over edge_index",
    **{
        name: f"{name} makes other edges than the job's; {_OTHERS}"
        for name in (
            "coalesce",
            "subgraph",
            "k_hop_subgraph",
            "negative_sampling",
            "to_scipy_sparse_matrix",
        )
    },
    **{
        name: f"{name} makes edges of nearest neighbours; make them before, as the job's edges or a"
        " relation of it"
        for name in NEAR
    },
}
"""Functions of PyG that no program does -> why, and what to do."""


def softmax(recording: Recording, real: Function) -> Function:
    """`torch_geometric.utils.softmax` over the in-edges of each node."""

    def replacing(
        src: Any, index: Any = None, ptr: Any = None, num_nodes: Any = None, dim: int = 0
    ) -> Any:
        if not isinstance(src, Traced):
            return real(src, index, ptr, num_nodes, dim)
        name = target_of(index.node) if isinstance(index, Traced) else None
        if name is None or dim != 0:
            raise refuse(
                here(),
                "softmax is known over the in-edges of each node: give it the argument index of"
                " message, or edge_index[1], and dim=0",
            )
        return recording.edges[name].softmax(src)

    return replacing


def refused(name: str) -> Callable[[Recording, Function], Function]:
    """What stands for a function that no program does."""

    def make(_recording: Recording, real: Function) -> Function:
        def replacing(*args: Any, **kwargs: Any) -> Any:
            if any(isinstance(arg, Traced) for arg in (*args, *kwargs.values())):
                raise refuse(here(), REFUSED[name])
            return real(*args, **kwargs)

        return replacing

    return make


def to_dense_batch(_recording: Recording, real: Function) -> Function:
    """`torch_geometric.utils.to_dense_batch` of all nodes, which stay as they are.

    What attends to all of them is known as a whole (`pyg.global_attention`).
    """

    def replacing(x: Any, batch: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, Traced):
            return real(x, batch, *args, **kwargs)
        if not (batch is None or isinstance(batch, OneGraph)) or args or kwargs:
            raise refuse(here(), DENSE)
        return x, OneGraph(len(x))

    return replacing


def degree(recording: Recording, real: Function) -> Function:
    """`torch_geometric.utils.degree` of the sources or the destinations of edges."""

    def replacing(index: Any, num_nodes: Any = None, dtype: Any = None) -> Any:
        ends = ends_of(recording.edges, index)
        if ends is None:
            return real(index, num_nodes, dtype)
        edges, into = ends
        _check_count("degree", num_nodes, edges, into)
        return edges.degree("in" if into else "out")

    return replacing


def scatter(recording: Recording, real: Function) -> Function:
    """`torch_geometric.utils.scatter` of tensors of edges to the nodes at their ends."""

    def replacing(
        src: Any, index: Any, dim: int = 0, dim_size: Any = None, reduce: str = "sum"
    ) -> Any:
        ends = ends_of(recording.edges, index)
        if ends is None:
            return real(src, index, dim, dim_size, reduce)
        edges, into = ends
        _check_count("scatter", dim_size, edges, into)
        if dim % src.dim() != 0:
            raise refuse(here(), "scatter of edges is known with dim=0, which counts them")
        scope = recording.scopes.current()
        return summed(edges, src, reduce, scope, into=into, what="scatter")

    return replacing


def add_self_loops(recording: Recording, real: Function) -> Function:
    """`torch_geometric.utils.add_self_loops`: one more at each node."""
    return _adding(recording, real, "add_self_loops")


def add_remaining_self_loops(recording: Recording, real: Function) -> Function:
    """`torch_geometric.utils.add_remaining_self_loops`: exactly one at each node."""
    return _adding(recording, real, "add_remaining_self_loops")


def remove_self_loops(recording: Recording, real: Function) -> Function:
    """`torch_geometric.utils.remove_self_loops`."""

    def replacing(edge_index: Any, edge_attr: Any = None) -> Any:
        view = _view(recording, edge_index, "remove_self_loops")
        if view is None:
            return real(edge_index, edge_attr)
        return _changed(recording, real, "remove_self_loops", view, edge_attr, {})

    return replacing


def _adding(recording: Recording, real: Function, change: Change) -> Function:
    def replacing(
        edge_index: Any, edge_attr: Any = None, fill_value: Any = None, num_nodes: Any = None
    ) -> Any:
        view = _view(recording, edge_index, change)
        if view is None:
            return real(edge_index, edge_attr, fill_value, num_nodes)
        edges = recording.edges[view.name]
        if edges.sources != edges.destinations:
            raise refuse(
                here(),
                f"{change} of {view.relation}, which leads from one node type to another; only"
                " edges within one type can have self-loops",
            )
        sizes = num_nodes if isinstance(num_nodes, (tuple, list)) else (num_nodes,)
        for size in sizes:
            _check_count(change, size, edges, into=True)
        fill = 1.0 if fill_value is None else fill_value
        if isinstance(fill, Tensor) and fill.numel() == 1 and not isinstance(fill, Traced):
            fill = float(fill)
        more = {"fill_value": fill, "num_nodes": edges.destinations}
        return _changed(recording, real, change, view, edge_attr, more)

    return replacing


def _view(recording: Recording, edge_index: Any, change: Change) -> View | None:
    """Which edges are changed; None for none that are recorded."""
    if not isinstance(edge_index, Traced):
        return None
    name = edges_of(edge_index.node)
    if name not in recording.edges:
        raise refuse(
            here(),
            f"{change} is known of the job's own edges, of one relation; change those in the job",
        )
    if is_of_several(edge_index.node):
        raise refuse(
            here(),
            f"{change} of the edges of several relations together is not known; leave it out"
            " (add_self_loops=False of a convolution), and let self-loops be a relation",
        )
    return recording.edges[str(name)].view


def _changed(
    recording: Recording,
    real: Function,
    change: Change,
    view: View,
    edge_attr: Any,
    more: dict[str, Any],
) -> tuple[Traced, Traced | None]:
    """The edges and what they carry."""
    before, edges = recording.edges[view.name], recording.seen(view.after(change))
    edge_index, fill = recording.edge_index[edges.view.name], more.get("fill_value", 1.0)
    if edge_attr is None:
        return edge_index, None
    role = _role(edge_attr, change, view, fill)
    attr = real(before.own.edge_index, plain(edge_attr), **more)[1]
    return edge_index, recording.of_loops(role, edges.view, attr, fill)


def _role(attr: Any, change: Change, view: View, fill: Any) -> str:
    """What edges carry: ``edge_weight`` or ``edge_features``.

    Raises:
        ModelError: no step has it with these self-loops.
    """
    role = _carried(attr)
    if role is None:
        raise refuse(
            here(),
            f"{change} is given edge_attr that is computed; new self-loops are known of the graph's"
            " own weights and features: change edges first, and compute then",
        )
    if change == "remove_self_loops":
        return role
    if role == "edge_weight" and type(fill) not in (int, float):
        raise refuse(here(), f"{change} fills in weights by {fill!r}; give a number")
    if role == "edge_weight" and view.loops not in ("keep", "none"):
        raise refuse(
            here(),
            f"{change} comes after another function that added self-loops, whose weights are not"
            " the graph's; add them once",
        )
    if role == "edge_features":
        if type(fill) not in (int, float) and fill not in _FILLS:
            raise refuse(here(), f"{change} fills in features by {fill!r}; give a number or a word")
        if change == "add_remaining_self_loops" and view.loops != "none":
            raise refuse(
                here(),
                "add_remaining_self_loops keeps the features of self-loops that are there, which no"
                " step does; call remove_self_loops first, or use add_self_loops",
            )
    return role


def _carried(attr: Any) -> str | None:
    if not isinstance(attr, Traced) or attr.numel() != shaped(attr.node).value.numel():
        return None
    if is_weight(attr.node):
        return "edge_weight"
    return "edge_features" if is_features(attr.node) and attr.dim() == 2 else None


def _check_count(what: str, count: Any, edges: Edges, into: bool) -> None:
    nodes = edges.destinations if into else edges.sources
    if count is None:
        raise refuse(
            here(),
            f"{what} does not know how many nodes there are, and takes the largest number among the"
            " edges; give it x.size(0)",
        )
    if not isinstance(count, torch.SymInt | int) or count != nodes:
        raise refuse(
            here(), f"{what} is given {count} nodes, but there are {nodes}; give x.size(0)"
        )
