"""Whole commands side by side: Embertide against DGL, PyG and a lean torch script.

    .venv/bin/python -m benchmarks.end_to_end --scale 16 --grid 1x1 2x1

Every system reads the same files, computes the same embeddings and writes them; they take
turns, and each figure is a median over the rounds. *wall* is the whole command, *work* is wall
less what happens before the first file is read (interpreter, imports, processes). Before a run
the cached pages of its inputs are dropped. A last round, not timed, measures the memory of all
processes together and compares every system's embeddings with the first one's.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from benchmarks.dataset import make
from benchmarks.machine import limits
from benchmarks.peers import ours
from benchmarks.support.commands import Took, drop_cached, run
from benchmarks.support.rounds import Run, alternate, middle, ratio, save, table

PEERS = ("torch_csr", "dgl_full_graph", "dgl_layer_wise", "pyg_layer_wise")
OF_APPNP = ("dgl_full_graph",)
"""Peers that know it."""
MOST_ERROR = 1e-3
"""Largest difference between two systems' embeddings, whose size is about one."""

Embeddings = npt.NDArray[np.float32]


class Case:
    """One graph, model and feature format; runs any system on it."""

    write_job: ClassVar[Callable[..., Path]] = staticmethod(ours.write_job)
    types: ClassVar[tuple[str | None, ...]] = (None,)
    """Node types, in the order in which peers write their embeddings."""

    def __init__(self, data: Path, work: Path, conv: str, features: str, settle: float) -> None:
        self.data, self.work, self.conv, self.features = data, work, conv, features
        self.settle = settle

    def peer(self, name: str, *, watch: bool = False) -> Run:
        """Run a peer; its seconds, and with ``watch`` its memory and embeddings."""
        out = self.work / f"{name}.npy"
        module = ["-W", "ignore", "-m", f"benchmarks.peers.{name}"]
        given = ["--data", self.data, "--conv", self.conv, "--features", self.features]
        took = self._run([sys.executable, *module, *map(str, given), "--out", str(out)], watch)
        stages = json.loads(took.stdout.splitlines()[-1])["stages"]
        found = _seconds(took, stages, took.wall - stages["import"])
        return found | ({"embeddings": np.load(out)} if watch else {})

    def grid(self, shape: str, *, watch: bool = False) -> Run:
        """Run Embertide on a grid."""
        output = self.work / f"ours-{shape}"
        shutil.rmtree(output, ignore_errors=True)
        job = self.write_job(self.data, self.conv, self.features, output)
        took = self._run(ours.command(job, shape), watch)
        report = ours.report(took.stdout)
        inside = report["total_seconds"]
        found = _seconds(took, {"import": took.wall - inside, **report["stages"]}, inside)
        return found | ({"embeddings": _published(output, self.types)} if watch else {})

    def _run(self, command: list[str], watch: bool) -> Took:
        drop_cached(self.data)
        time.sleep(self.settle)
        return run(command, watch=watch)


Cases = Callable[[Path, Path], Iterator[tuple[Case, list[str], dict[str, str]]]]
"""Of a data set and a folder for results: each case, its peers, and what it is."""


def _seconds(took: Took, stages: dict[str, float], work: float) -> Run:
    return {
        "wall": took.wall,
        "work": work,
        "infer": stages["infer"],
        "stages": stages,
        "others": took.others,
        "peak_bytes": took.peak_bytes,
    }


def _published(output: Path, types: Sequence[str | None]) -> Embeddings:
    """The published embeddings, type by type in the order of node ids."""
    from embertide.storage.opening import open_storage
    from embertide.versions.reading import iter_embeddings

    uri = f"file://{output / 'embeddings'}"
    storage, rows = open_storage(uri), []
    for of_type in types:
        batches = list(iter_embeddings(storage, uri, node_type=of_type))
        ids = np.concatenate([batch[0] for batch in batches])
        found = np.empty((len(ids), batches[0][1].shape[1]), np.float32)
        found[ids] = np.concatenate([batch[1] for batch in batches])
        rows.append(found)
    return np.concatenate(rows)


def measure(case: Case, peers: list[str], grids: list[str], rounds: int) -> dict[str, Run]:
    """System -> medians, ratios to the fastest peer, memory and error."""
    systems: dict[str, Callable[..., Run]] = {
        name: lambda name=name, **more: case.peer(name, **more) for name in peers
    }
    systems |= {f"ours {s}": lambda s=s, **more: case.grid(s, **more) for s in grids}
    watched = compare(systems)
    title = f"{case.data.name} {case.conv} {case.features}"
    runs = alternate(systems, rounds, title) if rounds else {n: [r] for n, r in watched.items()}
    found = {name: middle(of) for name, of in runs.items()}
    for key in ("wall", "work", "infer"):
        fastest = min(peers, key=lambda name: found[name][key])
        for name, of in runs.items():
            found[name][f"{key}_ratio"] = ratio(of, runs[fastest], key)
    for name, of in found.items():
        of |= {key: watched[name][key] for key in ("peak_bytes", "max_error")}
    return found


def compare(systems: dict[str, Callable[..., Run]]) -> dict[str, Run]:
    """Run each system once, watched; ends the command where embeddings differ."""
    found: dict[str, Run] = {}
    first: Embeddings | None = None
    for name, system in systems.items():
        found[name] = system(watch=True)
        embeddings = found[name].pop("embeddings")
        first = embeddings if first is None else first
        error = found[name]["max_error"] = float(np.abs(embeddings - first).max())
        if not error < MOST_ERROR:
            sys.exit(f"{name} is wrong: it differs by {error}")
    return found


def show(title: str, found: dict[str, Run]) -> None:
    """A table of one case."""
    head = ["system", "wall s", "work s", "infer s", "wall ratio", "work ratio", "infer ratio"]
    keys = ["wall", "work", "infer", "wall_ratio", "work_ratio", "infer_ratio"]
    rows: list[list[Any]] = [
        [name, *(run[k] for k in keys), round(run["peak_bytes"] / 2**20), f"{run['max_error']:.1e}"]
        for name, run in found.items()
    ]
    print(f"\n{title}\n\n" + table([*head, "peak MiB", "max error"], rows), flush=True)


def options(title: str | None, convs: Sequence[str], grids: Sequence[str]) -> ArgumentParser:
    """What all commands that compare whole commands take."""
    parser = ArgumentParser(description=title, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, nargs="+", default=[16], help="2^scale nodes")
    parser.add_argument("--conv", nargs="+", default=list(convs[:2]), choices=convs)
    parser.add_argument("--grid", nargs="+", default=list(grids))
    parser.add_argument("--rounds", type=int, default=3, help="0: only compare the results")
    parser.add_argument("--settle", type=float, default=2.0, help="idle seconds before each run")
    parser.add_argument("--no-limits", action="store_true", help="skip the machine's limits")
    parser.add_argument("--work", type=Path, help="where data sets are kept between calls")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    return parser


def compare_cases(
    name: str, given: Namespace, data_of: Callable[[Path, int], Path], cases: Cases
) -> None:
    """Measure, show and keep the cases of every scale.

    Args:
        name: of the JSON file.
        data_of: the data set of a scale, in a folder.
        cases: of a data set: the case, its peers, and what it is.
    """
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        work = given.work or Path(folder)
        found: Run = {"machine": {} if given.no_limits else limits(work), "cases": []}
        for scale in given.scale:
            data = data_of(work, scale)
            sizes = json.loads((data / "dataset.json").read_text())
            for case, peers, about in cases(data, Path(folder)):
                systems = measure(case, peers, given.grid, given.rounds)
                size = {key: sizes[key] for key in ("nodes", "edges")}
                found["cases"].append({"scale": scale, **about, **size, "systems": systems})
                show(f"scale {scale}, {', '.join(about.values())}", systems)
        save(name, found, given.out)


def main() -> None:
    """Measure all asked-for cases."""
    parser = options(__doc__, ["gcn", "gat", "appnp"], ["1x1", "2x1", "1x2", "2x2"])
    parser.add_argument("--features", nargs="+", default=["npy"], choices=["npy", "parquet"])
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    given = parser.parse_args()

    def data_of(folder: Path, scale: int) -> Path:
        return make(folder / f"rmat-{scale}", scale=scale)

    def cases(data: Path, work: Path) -> Iterator[tuple[Case, list[str], dict[str, str]]]:
        for conv, features in product(given.conv, given.features):
            peers = [name for name in given.peers if conv != "appnp" or name in OF_APPNP]
            case = Case(data, work, conv, features, given.settle)
            yield case, peers, {"conv": conv, "features": features}

    compare_cases("end_to_end", given, data_of, cases)


if __name__ == "__main__":
    main()
