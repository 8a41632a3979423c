"""Make the files that the benchmark of files to CSR reads: the same graph with ids of any kind.

.venv/bin/python -m benchmarks.graph_dataset FOLDER --ids string --format parquet
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.dataset import write_model

KINDS = ("dense", "int64", "string", "hex")
FORMATS = ("parquet", "csv", "npy")
_FILES = 16


def node_ids(kind: str, nodes: int) -> pa.Array:
    """Ids of all nodes: row numbers, any int64, ``u`` and a number, or 16 hexadecimal digits."""
    if kind == "dense":
        return pa.array(np.arange(nodes))
    if kind == "string":
        return pa.array([f"u{i}" for i in range(nodes)])
    # An odd factor: no two are equal.
    words = np.arange(1, nodes + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    if kind == "int64":
        return pa.array(words.view(np.int64))
    digits = words.astype(">u8").tobytes().hex()
    return pa.array([digits[at : at + 16] for at in range(0, len(digits), 16)])


def make_ids(folder: Path, kind: str, form: str, nodes: int, edges: int) -> Path:
    """Write edges, features of one column and a model, unless they are there; returns ``folder``.

    Raises:
        SystemExit: strings as npy, which would take as much for each as the longest.
    """
    if form == "npy" and kind not in ("dense", "int64"):
        raise SystemExit(f"--format npy: not for {kind} ids; leave one of the two out")
    described = folder / "dataset.json"
    about = {"ids": kind, "format": form, "nodes": nodes, "edges": edges}
    if described.exists() and json.loads(described.read_text()) == about:
        return folder
    generator = np.random.default_rng(0)
    ids = node_ids(kind, nodes)
    for name in ("edges", "features"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(np.array_split(generator.permutation(nodes), _FILES)):
        x = generator.standard_normal(len(rows), dtype=np.float32)
        found = pa.table({"id": ids.take(pa.array(rows)), "x": x})
        pq.write_table(found, folder / "features" / f"part-{number:02}.parquet")
        count = edges * (number + 1) // _FILES - edges * number // _FILES
        ends = (ids.take(pa.array(generator.integers(0, nodes, count))) for _ in range(2))
        _write(folder / "edges" / f"part-{number:02}.{form}", *ends)
    write_model(folder / "model", "gcn", 1, layers=1)
    described.write_text(json.dumps(about))
    return folder


def _write(path: Path, source: Any, destination: Any) -> None:
    found = pa.table({"src": source, "dst": destination})
    if path.suffix == ".parquet":
        pq.write_table(found, path)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(found, path)
    else:
        np.save(path, np.stack([column.to_numpy() for column in found.columns], 1))


def main() -> None:
    """Make the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ids", default="string", choices=KINDS)
    parser.add_argument("--format", default="parquet", choices=FORMATS)
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--edges", type=int, default=16_000_000)
    given = parser.parse_args()
    make_ids(given.folder, given.ids, given.format, given.nodes, given.edges)


if __name__ == "__main__":
    main()
