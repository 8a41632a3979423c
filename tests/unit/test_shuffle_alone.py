"""One worker sorts its edges by what the histogram of their destinations says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embertide.grid import Grid, GridShape, RowRanges
from embertide.kernels.reading import count_ids
from embertide.primitives.edge_chunks import EdgeChunk
from embertide.primitives.exchange import Exchange
from embertide.primitives.shuffle import shuffle_edges
from embertide.stages.ingest import empty_edges
from embertide.telemetry.recorder import CountingRecorder


@pytest.mark.parametrize("nodes", [1, 2, 1000, 5003, 140_001])
def test_rows_are_those_of_all_edges(nodes: int) -> None:
    g = np.random.default_rng(0)
    ends = g.integers(0, nodes, (2, 6000)).astype(np.int32)
    edges = empty_edges(nodes, weighted=False)
    for source, destination in zip(*(np.array_split(end, 3) for end in ends), strict=True):
        edges.chunks.append(EdgeChunk(source, destination, None))
        count_ids(edges.histogram, destination, edges.shift)
    exchange = Exchange(Grid(GridShape.of(1, 1), 0), torch.device("cpu"), CountingRecorder())
    ranges = RowRanges.of_workers([0, nodes], 1)
    csr = shuffle_edges(exchange, ranges, edges, nodes).finish(remove_duplicates=False)
    order = np.lexsort(ends)
    assert np.array_equal(csr.cols.numpy(), ends[0][order])
    assert np.array_equal(csr.row_ids().numpy(), ends[1][order])
    assert not edges.chunks
