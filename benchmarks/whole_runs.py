"""What the commands that compare whole commands share: one case, its rounds, its table."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.machine import limits
from benchmarks.peers import ours
from benchmarks.support.commands import Took, drop_cached, run
from benchmarks.support.embeddings import batches, difference, published, written
from benchmarks.support.kept import Kept, add_arguments
from benchmarks.support.rounds import Run, alternate, middle, ratio, table

MOST_ERROR = 1e-3
"""Largest difference between two systems' embeddings, whose size is about one."""

KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 34), "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}
"""glibc keeps freed arrays in the process, and so does not fault their pages in anew."""
GAIN_BY_IT = ("dgl_full_graph", "dgl_layer_wise", "dgl_typed", "pyg_layer_wise")
"""Peers that need less of the processor with it: DGL a twelfth, GAT in PyG a third."""


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
        command = [sys.executable, *module, *map(str, given), "--out", str(out)]
        took = self._run(command, watch, KEEPS_MEMORY if name in GAIN_BY_IT else {})
        stages = json.loads(took.stdout.splitlines()[-1])["stages"]
        found = _seconds(took, stages, took.wall - stages["import"])
        return found | ({"embeddings": batches(written(out))} if watch else {})

    def grid(self, shape: str, *, watch: bool = False) -> Run:
        """Run Embertide on a grid."""
        output = self.work / f"ours-{shape}"
        shutil.rmtree(output, ignore_errors=True)
        job = self.write_job(self.data, self.conv, self.features, output)
        took = self._run(ours.command(job, shape), watch, {})
        report = ours.report(took.stdout)
        inside = report["total_seconds"]
        found = _seconds(took, {"import": took.wall - inside, **report["stages"]}, inside)
        return found | ({"embeddings": published(output, self.types)} if watch else {})

    def _run(self, command: list[str], watch: bool, env: dict[str, str]) -> Took:
        drop_cached(self.data)
        time.sleep(self.settle)
        return run(command, watch=watch, env=env)


@dataclass(frozen=True)
class Comparison:
    """A case that is to be measured: what it is, its peers, and how it is made.

    Attributes:
        about: what tells it from other cases of the command.
        case: of a folder for data sets and one for results.
    """

    about: Run
    peers: list[str]
    case: Callable[[Path, Path], Case]


def _seconds(took: Took, stages: dict[str, float], work: float) -> Run:
    return {
        "wall": took.wall,
        "work": work,
        "infer": stages.get("infer", 0.0),
        "stages": stages,
        "user": took.user,
        "system": took.system,
        "others": took.others,
        "peak_bytes": took.peak_bytes,
    }


def measure(
    case: Case, peers: list[str], grids: list[str], rounds: int, slow: float
) -> dict[str, Run]:
    """System -> medians, ratios to the fastest peer, memory and error."""
    systems: dict[str, Callable[..., Run]] = {
        name: lambda name=name, **more: case.peer(name, **more) for name in peers
    }
    systems |= {f"ours {s}": lambda s=s, **more: case.grid(s, **more) for s in grids}
    watched = compare(systems, case.work / f"{peers[0]}.npy")
    most = slow * min(run["work"] for run in watched.values())
    once = [name for name, run in watched.items() if run["work"] > most]
    title = f"{case.data.name} {case.conv} {case.features}"
    runs = {name: [run] for name, run in watched.items()}
    if rounds:
        runs = alternate(systems, rounds, title, once)
    found = {name: middle(of) | {"runs": len(of)} for name, of in runs.items()}
    for key in ("wall", "work", "infer"):
        fastest = min(peers, key=lambda name: found[name][key])
        for name, of in runs.items():
            found[name][f"{key}_ratio"] = ratio(of, runs[fastest], key)
    for name, medians in found.items():
        medians |= {key: watched[name][key] for key in ("peak_bytes", "max_error")}
    return found


def compare(systems: dict[str, Callable[..., Run]], first: Path) -> dict[str, Run]:
    """Run each system once, watched; ends the command where embeddings differ.

    Args:
        first: the file of the first system's embeddings.
    """
    found: dict[str, Run] = {}
    for name, system in systems.items():
        print(f"  {name}, watched", file=sys.stderr)
        found[name] = system(watch=True)
        found[name]["max_error"] = error = difference(found[name].pop("embeddings"), written(first))
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
    parser.add_argument("--rounds", type=int, default=3, help="0: times of the watched round")
    parser.add_argument(
        "--slow", type=float, default=2.5, help="times the fastest: such systems are timed once"
    )
    parser.add_argument("--settle", type=float, default=2.0, help="idle seconds before each run")
    parser.add_argument("--no-limits", action="store_true", help="skip the machine's limits")
    add_arguments(parser)
    return parser


def compare_cases(name: str, given: Namespace, cases: Sequence[Comparison]) -> None:
    """Measure, show and keep the cases, each as soon as it is measured.

    Args:
        name: of the JSON file.
    """
    kept = Kept(name, {}, out=given.out, resume=given.resume, minutes=given.minutes)
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        work = given.work or Path(folder)
        for one in kept.missing(cases, lambda case: case.about):
            kept.limits(lambda: {} if given.no_limits else limits(work))
            case = one.case(work, Path(folder))
            systems = measure(case, one.peers, given.grid, given.rounds, given.slow)
            sizes = json.loads((case.data / "dataset.json").read_text())
            kept.add({**one.about, **{k: sizes[k] for k in ("nodes", "edges")}, "systems": systems})
            show(", ".join(f"{key} {value}" for key, value in one.about.items()), systems)
