"""Whole commands side by side: Embertide against DGL, PyG and a lean torch script.

    .venv/bin/python -m benchmarks.end_to_end --scale 16 --grid 1x1 2x1

Every system reads the same files, computes the same embeddings and writes them; they take
turns, and each figure is a median over the rounds. *wall* is the whole command, *work* is wall
less what happens before the first file is read (interpreter, imports, processes). Before a run
the cached pages of its inputs are dropped. A first round measures the memory of all processes
together and compares every system's embeddings with the first one's; its times do not count,
unless there are no rounds but this one. What takes long there, against the fastest, is timed once.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from benchmarks.dataset import make, write_parquet_features
from benchmarks.whole_runs import Case, Comparison, compare_cases, options

PEERS = ("torch_csr", "dgl_full_graph", "dgl_layer_wise", "pyg_layer_wise")
OF_APPNP = ("dgl_full_graph",)
"""Peers that know it."""


def main() -> None:
    """Measure all asked-for cases."""
    parser = options(__doc__, ["gcn", "gat", "appnp"], ["1x1", "2x1", "1x2", "2x2"])
    parser.add_argument("--features", nargs="+", default=["npy"], choices=["npy", "parquet"])
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    given = parser.parse_args()

    def comparison(scale: int, conv: str, features: str) -> Comparison:
        def case(folder: Path, work: Path) -> Case:
            data = make(folder / f"rmat-{scale}", scale=scale)
            if features == "parquet":
                write_parquet_features(data / "features")
            return Case(data, work, conv, features, given.settle)

        peers = [name for name in given.peers if conv != "appnp" or name in OF_APPNP]
        return Comparison({"scale": scale, "conv": conv, "features": features}, peers, case)

    asked = product(given.scale, given.conv, given.features)
    compare_cases("end_to_end", given, [comparison(*one) for one in asked])


if __name__ == "__main__":
    main()
