"""What stands for DGL's norm of edges where types are given as numbers."""

from __future__ import annotations

import pytest
import torch

from embertide.models.dgl_interop import load_dgl
from embertide.tracing.record.graphs import random_graph
from tests.support.export_texts import module_of


@pytest.mark.dgl
def test_a_norm_is_that_of_dgl() -> None:
    """What `norm` stands for is what ``dgl.norm_by_dst`` gives, relation by relation."""
    _, options = module_of("exports/numbers.txt", "own")
    types, dgl = options["graph"], load_dgl()
    graph = random_graph(types, 23, seed=9)
    ends = {types.triple(name): (one.src, one.dst) for name, one in graph.edges.items()}
    real = dgl.heterograph(ends, num_nodes_dict=graph.counts)
    norms = [dgl.norm_by_dst(real, triple) for triple in ends]
    assert torch.allclose(graph.merged["norm"].squeeze(1), torch.cat(norms).double())
