"""DGL with the whole graph in memory: one forward over all nodes per layer."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.work import LAYERS, Work, factors, import_dgl

work = Work.from_arguments(__doc__)
with work.stage("import"):
    import pyarrow.parquet  # noqa: F401  # counted as imports; used by reading
    import safetensors.torch  # noqa: F401
    import torch

    dgl: Any = import_dgl()
    from benchmarks.peers import dgl_modules


def build(source: Any, destination: Any) -> tuple[Any, Any, Any]:
    """The graph in CSC with edges numbered in that order, and its degrees."""
    ends = torch.from_numpy(source), torch.from_numpy(destination)
    graph = dgl.graph(ends, num_nodes=work.nodes, idtype=torch.int32)
    degrees = graph.in_degrees(), torch.bincount(ends[0], minlength=work.nodes)
    indptr, indices, _ = graph.adj_tensors("csc")
    unnumbered = torch.empty(0, dtype=torch.int32)
    graph = dgl.graph(
        ("csc", (indptr, indices, unnumbered)), num_nodes=work.nodes, idtype=torch.int32
    )
    # GATConv's scores want COO besides.
    graph = graph.formats(["coo", "csc"] if work.conv == "gat" else ["csc"])
    graph.create_formats_()
    return graph, *degrees


def layers(graph: Any, h: Any, left: Any, right: Any) -> Any:
    """One after the other, each over the whole graph."""
    for number, layer in enumerate(dgl_modules.layers(work.conv, work.weights())):
        if work.conv == "gcn":
            h.mul_(left)
        h = layer(graph, h, None, right)
        if number < LAYERS - 1:
            h.relu_()
    return h


def main() -> None:
    """Read, build, infer, write."""
    with work.stage("read_edges"):
        source, destination = work.read_edges()
    with work.stage("build"):
        graph, in_degree, out_degree = build(source, destination)
        del source, destination
    with work.stage("read_features"):
        h = torch.from_numpy(work.read_features())
    with work.stage("infer"), torch.no_grad():
        right, left = (f.unsqueeze(1) for f in factors(in_degree, out_degree))
        if work.conv == "appnp":
            h = dgl_modules.appnp(graph, h, work.weights(), left, right)
        else:
            h = layers(graph, h, left, right)
    work.finish(h.numpy())


main()
