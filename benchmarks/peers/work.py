"""What every peer shares: the definition of the work, reading, writing, stage seconds.

The graph is the edge list plus one self-loop at every node; an edge (src, dst) carries a
message to dst. Three layers, relu between them:

- GCN: h' = R A C h W + b with C = out-degree^-1/2 of the source, R = in-degree^-1/2 of the
  target, degrees of the whole graph (DGL's ``GraphConv`` with norm "both").
- GAT: z = h W; softmax over the in-edges of leaky_relu(<a_l, z_u> + <a_r, z_v>, 0.2), four
  heads, concatenated, + b (DGL's ``GATConv``).
- APPNP: not three layers, but one Linear and ten times h' = 0.9 R A C h + 0.1 h_0, with GCN's R
  and C (DGL's ``APPNPConv``).

Nothing heavy is imported before a peer asks for it, so that its imports can be timed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

HEADS, LAYERS, SLOPE = 4, 3, 0.2
HOPS, TELEPORT = 10, 0.1
THREADS = len(os.sched_getaffinity(0))


def since_start() -> float:
    """Seconds that this process has existed."""
    started = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    up = float(Path("/proc/uptime").read_text().split()[0])
    return up - started / os.sysconf("SC_CLK_TCK")


@dataclass
class Work:
    """One peer's run: its options, its stage seconds, and the reading and writing of files."""

    data: Path
    conv: str
    features: str
    out: Path
    nodes: int
    edges: int
    width: int
    convs: ClassVar[tuple[str, ...]] = ("gcn", "gat", "appnp")

    stages: dict[str, float] = field(default_factory=dict)
    before: float = 0.0
    begin: float = 0.0
    given: argparse.Namespace = field(default_factory=argparse.Namespace)

    @classmethod
    def from_arguments(
        cls, title: str | None, add_more: Callable[[argparse.ArgumentParser], None] | None = None
    ) -> Work:
        """From the command line; the clock starts where the process did.

        Args:
            add_more: adds arguments of the peer's own, which are in ``given``.
        """
        before, begin = since_start(), time.perf_counter()
        parser = argparse.ArgumentParser(description=title)
        if add_more is not None:
            add_more(parser)
        parser.add_argument("--data", type=Path, required=True, help="made by benchmarks.dataset")
        parser.add_argument("--conv", choices=cls.convs, default=cls.convs[0])
        parser.add_argument("--features", choices=["npy", "parquet"], default="npy")
        parser.add_argument("--out", type=Path, required=True, help="npy file of the embeddings")
        given = parser.parse_args()
        sizes = json.loads((given.data / "dataset.json").read_text())
        numbers = {key: sizes[key] for key in ("nodes", "edges", "width")}
        stages = {"import": before}
        return cls(
            given.data,
            given.conv,
            given.features,
            given.out,
            **numbers,
            stages=stages,
            before=before,
            begin=begin,
            given=given,
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the body's seconds under a name."""
        start = time.perf_counter()
        yield
        self.stages[name] = self.stages.get(name, 0.0) + time.perf_counter() - start

    def weights(self) -> dict[str, Any]:
        """The model's parameters as torch tensors, by DGL's names."""
        import safetensors.torch

        return safetensors.torch.load_file(self.data / "models" / self.conv / "weights.safetensors")

    def read_edges(
        self, dtype: npt.DTypeLike = np.int32
    ) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
        """Sources and destinations [E + N], the self-loops last; files side by side."""
        source, destination = self.read_pairs(self.data / "edges", dtype, more=self.nodes)
        source[self.edges :] = np.arange(self.nodes, dtype=dtype)
        destination[self.edges :] = source[self.edges :]
        return source, destination

    def read_pairs(
        self, folder: Path, dtype: npt.DTypeLike = np.int32, more: int = 0
    ) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
        """Sources and destinations of a folder's files, with room for some more behind them."""
        import pyarrow.parquet as pq

        files = sorted(folder.glob("*.parquet"))
        counts = [pq.read_metadata(file).num_rows for file in files]
        first = np.concatenate([[0], np.cumsum(counts)])
        source = np.empty(int(first[-1]) + more, dtype)
        destination = np.empty_like(source)

        def read(number: int) -> None:
            found = pq.ParquetFile(files[number]).read(["src", "dst"], use_threads=False)
            for name, into in (("src", source), ("dst", destination)):
                fill(into, int(first[number]), found.column(name))

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(read, range(len(files))))
        return source, destination

    def read_features(self) -> npt.NDArray[np.float32]:
        """[N, D] in the order of node ids; files side by side, in no order on disk."""
        return self.read_rows(self.data / "features", self.nodes)

    def read_rows(self, folder: Path, nodes: int) -> npt.NDArray[np.float32]:
        """[nodes, D] of the files in a folder, in the order of ids."""
        x = np.empty((nodes, self.width), np.float32)
        parquet = self.features == "parquet"

        def read(file: Path) -> None:
            ids, rows = self._parquet_rows(file) if parquet else self._npy_rows(file)
            x[ids] = rows

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(read, sorted((folder / ("parquet" if parquet else "x")).iterdir())))
        return x

    def _npy_rows(self, file: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        return np.load(file.parents[1] / "ids" / file.name), np.load(file)

    def _parquet_rows(self, file: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        import pyarrow.parquet as pq

        found = pq.ParquetFile(file).read(use_threads=False)
        ids = np.empty(found.num_rows, np.int64)
        fill(ids, 0, found.column("id"))
        rows = np.empty((found.num_rows, self.width), np.float32)
        at = 0
        for chunk in found.column("x").chunks:
            values = chunk.flatten()
            flat = np.frombuffer(values.buffers()[1], np.float32, len(values), 4 * values.offset)
            rows[at : at + len(chunk)] = flat.reshape(-1, self.width)
            at += len(chunk)
        return ids, rows

    def finish(self, *embeddings: npt.NDArray[np.float32]) -> None:
        """Write the embeddings to the disk, one type's rows after the other, and print what the run
        took as a line of JSON."""
        rows = sum(map(len, embeddings))
        head = {"descr": "<f4", "fortran_order": False, "shape": (rows, self.width)}
        with self.stage("write"), self.out.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, head)
            for of_type in embeddings:
                np.ascontiguousarray(of_type).tofile(file)
            file.flush()
            os.fsync(file.fileno())
        wall = self.before + time.perf_counter() - self.begin
        print(json.dumps({"stages": self.stages, "inside": wall}))


def fill(into: npt.NDArray[np.integer], at: int, column: Any) -> None:
    """Copy an int64 column without nulls out of Arrow's buffers; ``to_numpy`` imports pandas."""
    for chunk in column.chunks:
        values = np.frombuffer(chunk.buffers()[1], np.int64, len(chunk), 8 * chunk.offset)
        into[at : at + len(chunk)] = values
        at += len(chunk)


def import_dgl() -> Any:
    """DGL with its torch backend; with none named it would write a file of settings first."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl

    return dgl


def factors(in_degree: Any, out_degree: Any) -> tuple[Any, Any]:
    """R and C of the GCN, [N] float32 each; no degree is 0."""
    return in_degree.float().rsqrt_(), out_degree.float().rsqrt_()
