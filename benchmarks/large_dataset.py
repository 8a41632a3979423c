"""Make a graph of any size in little memory: edges, features and a GCN, drawn a part at a time.

    .venv/bin/python -m benchmarks.large_dataset FOLDER --nodes 48000000 --edges 1000000000

RMAT as in ``benchmarks.dataset``, on the next power of two, whose nodes are taken modulo the number
of nodes after their names were permuted. Self-loops are left out. All files are parquet, ids are
int32, and features are in no order. The same options give the same files.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.dataset import draw_rmat, write_model
from benchmarks.peers.work import THREADS

FILE_EDGES, FILE_NODES = 1 << 26, 1 << 22
_DRAWN = 1 << 20


def make(folder: Path, *, nodes: int, edges: int, width: int) -> Path:
    """Write the data set, unless it is there already; returns ``folder``."""
    described = folder / "dataset.json"
    options = {"nodes": nodes, "edges": edges, "width": width}
    if described.exists() and json.loads(described.read_text())["options"] == options:
        return folder
    written = _write_edges(folder / "edges", nodes, edges)
    _write_features(folder / "features", nodes, width)
    write_model(folder / "models" / "gcn", "gcn", width)
    sizes = {"nodes": nodes, "edges": written, "width": width}
    described.write_text(json.dumps({"options": options, **sizes}))
    return folder


def _write_edges(folder: Path, nodes: int, edges: int) -> int:
    """Files of the columns src and dst; returns how many edges are not self-loops."""
    scale = max(1, (nodes - 1).bit_length())
    names = np.random.default_rng(0).permutation(np.arange(1 << scale, dtype=np.int32))
    names %= nodes

    def write(part: int) -> int:
        generator = np.random.default_rng([1, part])
        last = min(edges, (part + 1) * FILE_EDGES)
        schema = pa.schema([("src", pa.int32()), ("dst", pa.int32())])
        count = 0
        with pq.ParquetWriter(folder / f"part-{part:03}.parquet", schema, **_FORMAT) as file:
            for at in range(part * FILE_EDGES, last, _DRAWN):
                ends = draw_rmat(generator, scale, min(_DRAWN, last - at))
                source, destination = (names[end] for end in ends)
                other = source != destination
                table = {"src": source[other], "dst": destination[other]}
                file.write_table(pa.table(table))
                count += int(other.sum())
        return count

    return sum(_each(write, folder, edges, FILE_EDGES))


def _write_features(folder: Path, nodes: int, width: int) -> None:
    """Files of the columns id and x."""
    ids = np.random.default_rng(2).permutation(np.arange(nodes, dtype=np.int32))

    def write(part: int) -> int:
        here = ids[part * FILE_NODES : (part + 1) * FILE_NODES]
        x = np.random.default_rng([3, part]).standard_normal((len(here), width), dtype=np.float32)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), width)
        pq.write_table(
            pa.table({"id": here, "x": vectors}),
            folder / f"part-{part:03}.parquet",
            compression="none",
            use_dictionary=False,
            row_group_size=1 << 18,
        )
        return len(here)

    _each(write, folder, nodes, FILE_NODES)


_FORMAT: dict[str, Any] = {"compression": "zstd", "use_dictionary": False}


def _each(write: Callable[[int], int], folder: Path, rows: int, rows_a_file: int) -> list[int]:
    """Write the files of a folder side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(write, range(-(-rows // rows_a_file))))


def main() -> None:
    """Make the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    add_sizes(parser)
    options = parser.parse_args()
    make(options.folder, nodes=options.nodes, edges=options.edges, width=options.width)


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """The options of a graph's sizes."""
    parser.add_argument("--nodes", type=int, default=48_000_000)
    parser.add_argument("--edges", type=int, default=1_000_000_000, help="drawn, self-loops too")
    parser.add_argument("--width", type=int, default=32, help="columns of features and results")


if __name__ == "__main__":
    main()
