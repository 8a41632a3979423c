"""DGL's layer-wise inference, which is what DGI automates: blocks of all nodes, layer by layer.

A ``DataLoader`` over all nodes with ``MultiLayerFullNeighborSampler(1)`` gives one-layer blocks;
a layer's output for all nodes is kept in memory and is the next layer's input.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peers.work import LAYERS, Work, factors, import_dgl

BATCH = 65_536
"""Nodes a block; the best of those tried."""

work = Work.from_arguments(__doc__)
with work.stage("import"):
    import numpy as np
    import pyarrow.parquet  # noqa: F401  # counted as imports; used by reading
    import safetensors.torch  # noqa: F401
    import torch

    dgl: Any = import_dgl()
    from benchmarks.peers import dgl_modules


def infer(graph: Any, h: Any, in_degree: Any, out_degree: Any) -> Any:
    """[N, D'] of all layers."""
    from dgl.dataloading import DataLoader, MultiLayerFullNeighborSampler

    right, left = (f.unsqueeze(1) for f in factors(in_degree, out_degree))
    loader = DataLoader(
        graph,
        torch.arange(work.nodes),
        MultiLayerFullNeighborSampler(1),
        batch_size=BATCH,
        shuffle=False,
        num_workers=0,
    )
    for number, layer in enumerate(dgl_modules.layers(work.conv, work.weights())):
        out = torch.empty_like(h)
        if work.conv == "gcn":
            h.mul_(left)
        for inputs, targets, blocks in loader:
            first, last = int(targets[0]), int(targets[-1]) + 1  # not shuffled: consecutive
            rows = layer(blocks[0], h[inputs], len(targets), right[first:last])
            out[first:last] = rows.relu_() if number < LAYERS - 1 else rows
        h = out
    return h


def main() -> None:
    """Read, build, infer, write."""
    with work.stage("read_edges"):
        # With 32-bit ids DGL 1.1.3's fused sampler returns wrong blocks.
        source, destination = work.read_edges(np.int64)
    with work.stage("build"):
        ends = torch.from_numpy(source), torch.from_numpy(destination)
        graph = dgl.graph(ends, num_nodes=work.nodes)
        degrees = graph.in_degrees(), torch.bincount(ends[0], minlength=work.nodes)
        graph = graph.formats(["csc"])
        graph.create_formats_()
        del source, destination, ends
    with work.stage("read_features"):
        h = torch.from_numpy(work.read_features())
    with work.stage("infer"), torch.no_grad():
        h = infer(graph, h, *degrees)
    work.finish(h.numpy())


main()
