"""DGL's functions that change a graph's edges, which a module calls with its graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embertide.tracing.dgl.graph import RecordingGraph
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.traced import Traced
from embertide.tracing.record.user_code import here, refuse

REFUSED = (
    *("add_edges", "add_nodes", "add_reverse_edges", "edge_subgraph", "edge_type_subgraph"),
    *("in_subgraph", "khop_graph", "line_graph", "metapath_reachable_graph", "node_subgraph"),
    *("node_type_subgraph", "out_subgraph", "remove_edges", "remove_nodes", "reverse"),
    *("knn_graph", "segmented_knn_graph", "radius_graph"),
    *("to_bidirected", "to_block", "to_heterogeneous", "to_homogeneous", "to_simple"),
)
"""Functions of the package that make other edges of a graph's."""

_INSTEAD = {
    "reverse": "name the turned edges by reverse in the manifest, and read that relation",
    **dict.fromkeys(
        ("add_reverse_edges", "to_bidirected"),
        "say directed: false in the manifest, and leave the call out",
    ),
    "to_homogeneous": "give the module the types as numbers (g.ndata[dgl.NTYPE],"
    " g.edata[dgl.ETYPE]) of a graph that is homogeneous already, and name the node types and"
    " relations with --graph",
    **dict.fromkeys(
        ("to_block", "in_subgraph", "node_subgraph", "khop_graph"),
        "leave the call out: all nodes are computed, over all of their neighbours",
    ),
}
_NEAR = "make the edges of nearest neighbours before, as the job's edges or a relation of it"
_INSTEAD |= dict.fromkeys(("knn_graph", "segmented_knn_graph", "radius_graph"), _NEAR)
_CHANGE = "change the job's edges before (reverse, directed and selfLoops in the manifest)"


def add_self_loop(_recording: Recording, real: Callable[..., Any]) -> Callable[..., Any]:
    """`dgl.add_self_loop`."""

    def replacing(
        g: Any, edge_feat_names: Any = None, fill_data: Any = 1.0, etype: Any = None
    ) -> Any:
        if isinstance(g, RecordingGraph):
            return g.add_self_loop(edge_feat_names, fill_data, etype)
        return real(g, edge_feat_names, fill_data, etype)

    return replacing


def remove_self_loop(_recording: Recording, real: Callable[..., Any]) -> Callable[..., Any]:
    """`dgl.remove_self_loop`."""

    def replacing(g: Any, etype: Any = None) -> Any:
        return g.remove_self_loop(etype) if isinstance(g, RecordingGraph) else real(g, etype)

    return replacing


def refused(name: str) -> Callable[[Recording, Callable[..., Any]], Callable[..., Any]]:
    """What stands for a function that makes other edges."""

    def make(_recording: Recording, real: Callable[..., Any]) -> Callable[..., Any]:
        def replacing(g: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(g, RecordingGraph | Traced):
                return real(g, *args, **kwargs)
            raise refuse(
                here(),
                f"dgl.{name} makes another graph, but the module runs on the job's own edges;"
                f" {_INSTEAD.get(name, _CHANGE)}",
            )

        return replacing

    return make
