"""A random graph as DGL has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from embertide.models.dgl_interop import load_dgl
from embertide.tracing.dgl.frames import Field
from embertide.tracing.dgl.homogeneous import NUMBERS
from embertide.tracing.record.graphs import RandomGraph, as_passed


def real_graph(
    graph: RandomGraph,
    fields: Mapping[Field, str],
    x: Mapping[str, Tensor],
    *,
    numbered: bool = False,
) -> Any:
    """DGL's graph with the job's own tensors.

    Args:
        x: node type -> its features, or what stands for them.
        fields: what they are called.
        numbered: whether all types are together, as ``dgl.to_homogeneous`` puts them.
    """
    if numbered:
        return _together(graph, fields, x)
    real = _of_types(graph)
    for (kind, of), name in fields.items():
        if kind in ("ndata", "node_id"):
            value = x[of] if kind == "ndata" else graph.numbers(of)
            (real.nodes[of].data if of else real.ndata)[name] = value
        else:
            of_edges = real.edges[graph.types.triple(of)].data if of else real.edata
            edges = graph.edges[of]
            categories = graph.types.edge_categories.get(of, {})
            of_edges[name] = (
                edges.weight
                if kind == "edge_weight" or edges.features is None
                else as_passed(edges.features, categories)
            )
    return real


def _of_types(graph: RandomGraph) -> Any:
    if not graph.types.typed:
        edges = graph.edges[""]
        return load_dgl().graph((edges.src, edges.dst), num_nodes=graph.counts[""])
    ends = {graph.types.triple(name): (own.src, own.dst) for name, own in graph.edges.items()}
    return load_dgl().heterograph(ends, num_nodes_dict=graph.counts)


def _together(graph: RandomGraph, fields: Mapping[Field, str], x: Mapping[str, Tensor]) -> Any:
    merged = graph.merged
    real = load_dgl().graph(tuple(merged["edge_index"]), num_nodes=sum(graph.counts.values()))
    real.ndata[NUMBERS] = merged["node_type"]
    real.edata[NUMBERS] = merged["edge_type"]
    for (kind, _), name in fields.items():
        if kind == "ndata":
            real.ndata[name] = merged.get("x", next(iter(x.values())))
        else:
            real.edata[name] = merged[kind]
    return real
