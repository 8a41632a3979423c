"""DGL's PNAConv and DGNConv, tower by tower: their own norm asks the graph for its size."""

from __future__ import annotations

from typing import Any

import torch

from embertide.models.norm_options import GraphNormOptions
from embertide.tracing.dgl.graph import RecordingGraph
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.traced import Traced, plain


def tower(recording: Recording, m: Any, graph: Any, node_feat: Any, edge_feat: Any = None) -> Any:
    """PNAConvTower: its own messages, a Linear, and rows divided by the root of N."""
    if not isinstance(graph, RecordingGraph):
        return type(m).forward(m, graph, node_feat, edge_feat)
    with graph.local_scope():
        graph.ndata["h"] = node_feat
        if m.edge_feat_size > 0:
            graph.edata["a"] = edge_feat
        graph.update_all(m.message, m.reduce_func)
        neighbours: Any = graph.ndata["h_neigh"]
        h = m.U(torch.cat([node_feat, neighbours], dim=-1))
        return m.dropout(m.batchnorm(_by_size(recording, h)))


def _by_size(recording: Recording, h: Traced) -> Traced:
    args = ("", "PNAConvTower", GraphNormOptions(kind="size"), h)
    value = plain(h) / len(h) ** 0.5
    return recording.tape.wrap(recording.tape.add("graph_norm", args, {}, value))
