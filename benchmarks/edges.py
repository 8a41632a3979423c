"""Edges as benchmarks read, count and sort them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.graph.shuffle import HISTOGRAM_BITS
from embertide.kernels.csr import Csr
from embertide.kernels.edge_sort import EdgeSorter, bucket_count, bucket_shift, count_edges


def sort_edges(
    source: npt.NDArray[np.integer[Any]],
    destination: npt.NDArray[np.integer[Any]],
    start: int,
    stop: int,
    nodes: int,
) -> Csr:
    """The CSR of nodes start..stop from exactly the edges that lead there."""
    shift = bucket_shift(stop - start)
    counts = np.zeros((1, bucket_count(stop - start)), np.int64)
    count_edges(destination, np.array([start, stop], np.int64), shift, counts)
    sorter = EdgeSorter(
        counts[0], shift, first=start, rows=stop - start, nodes=nodes, weighted=False
    )
    sorter.add_edges(destination, source, None)
    return sorter.finish(remove_duplicates=False)


def histogram_of(
    destination: npt.NDArray[np.int64], nodes: int
) -> tuple[npt.NDArray[np.int64], int]:
    """Edges per 2^shift consecutive destinations, and shift."""
    shift = max(0, (nodes - 1).bit_length() - HISTOGRAM_BITS)
    return np.bincount(destination >> shift, minlength=((nodes - 1) >> shift) + 1), shift


def read_edges(files: list[Path]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sources and destinations of some parquet files, on one thread."""
    import pyarrow.parquet as pq

    if not files:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    tables = [pq.ParquetFile(file).read(["src", "dst"], use_threads=False) for file in files]
    source, destination = (
        np.concatenate([table.column(name).to_numpy() for table in tables])
        for name in ("src", "dst")
    )
    return source, destination
