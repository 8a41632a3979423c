"""Larger than memory: tensors on disk beside tensors in memory, and beside layers in memmaps.

    sudo .venv/bin/python -m benchmarks.out_of_core --scale 20 --memory 1GiB --rounds 3

Runs on one worker take turns: *in memory*; *on disk*, with ``--memory``; and *memmaps*, layer by
layer with numpy's memmaps (``baselines/memmap_layers.py``). The last two run in a memory group of
that size and the processes beside a worker, where the page cache counts; the script enters it once
its graph is built, which therefore does not count. Without root, or without the group, they run
without a limit, and ``limited`` is false.

The first round, whose times do not count, compares embeddings: on disk they must have the bits of
those in memory, and memmaps must be within 1e-3 of them. ``wrote`` and ``read`` are bytes to the
scratch folder and back, ``..._of_plan`` shares of what was planned. ``peak`` is the worker's memory
beyond its imports, ``group`` all that the group held. ``bound`` is the seconds that a disk takes
for as many bytes; its bandwidth is measured in each round: 1 GiB in sequence, past the page cache.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.dataset import make
from benchmarks.peers import ours
from benchmarks.support.commands import Took
from benchmarks.support.commands import run as run_command
from benchmarks.support.embeddings import batches, difference, published, written
from benchmarks.support.rounds import Run, alternate, middle, ratio, save, table
from benchmarks.whole_runs import MOST_ERROR, Case
from embertide.engine.planning.sizing import IMPORTS_BYTES, machine_bytes
from embertide.kernels.pages import empty_pages
from embertide.kernels.scratch_file import PIECE_BYTES, ScratchFile
from embertide.spec.workers import parse_memory
from tests.support.memory_group import LIMITS, MemoryGroup, memory_group

IN_MEMORY, ON_DISK, MEMMAPS = "in memory", "on disk", "memmaps"
KEYS = (
    "wall", "work", "infer", "cpu", "peak", "planned", "group", "wrote", "wrote_of_plan", "read",
    "read_of_plan", "bound", "wall_ratio", "work_ratio", "others",
)  # fmt: skip
BYTES = ("peak", "planned", "group", "wrote", "read")
DISK_BYTES = 1 << 30


class OutOfCore(Case):
    """Runs of one job with tensors in memory and on disk, and of the script with memmaps."""

    def __init__(
        self, data: Path, work: Path, conv: str, settle: float, memory: int, scratch: Path
    ) -> None:
        super().__init__(data, work, conv, "npy", settle)
        self.memory, self.scratch = memory, scratch

    def planned(self) -> tuple[Run | None, str]:
        """What is planned of the run on disk, in bytes; or None, and why there is no such run."""
        words = ["plan", str(self._job(ON_DISK)), "--grid", "1x1", *self._memory, "--json"]
        took = run_command([sys.executable, "-m", "embertide", *words])
        plan = json.loads(took.stdout)
        return plan["spill"], plan["budget"]["problem"] or "all tensors fit: give less --memory"

    def in_memory(self) -> Run:
        """A run as without ``--memory``."""
        return self._ours(IN_MEMORY, [], limited=False)

    def on_disk(self) -> Run:
        """A run with ``--memory``, in the group."""
        words = [*self._memory, "--scratch", str(self.scratch)]
        return self._ours(ON_DISK, words, limited=True)

    def memmaps(self) -> Run:
        """The script, in the group."""
        out = self.work / f"{MEMMAPS}.npy"
        words = ["-W", "ignore", "-m", "benchmarks.baselines.memmap_layers", "--data", self.data]
        words += ["--conv", self.conv, "--out", out, "--memory", self.memory]
        words += ["--scratch", self.scratch]
        with self._group() as group:
            entering = [] if group is None else ["--group", group.members]
            took = self._run([sys.executable, *map(str, [*words, *entering])], False, {})
            peak = 0 if group is None else group.peak_bytes
        stages = json.loads(took.stdout.splitlines()[-1])["stages"]
        work = took.wall - stages["import"]
        return _seconds(took, work) | {"infer": stages["infer"], "group": peak}

    def errors(self, names: Sequence[str]) -> dict[str, float]:
        """The largest difference of each system's last embeddings from the first one's, in memory;
        ends the command where it is too large."""
        first = self.work / "first.npy"
        sizes = json.loads((self.data / "dataset.json").read_text())
        shape = sizes["nodes"], sizes["width"]
        whole = np.lib.format.open_memmap(first, "w+", np.float32, shape)
        for ids, rows in published(self._output(IN_MEMORY), self.types):
            whole[ids] = rows
        errors = {IN_MEMORY: 0.0}
        for name in names[1:]:
            ours = name == ON_DISK
            found = published(self._output(name), self.types) if ours else batches(self._memmaps())
            errors[name] = error = difference(found, whole)
            if not error <= (0 if ours else MOST_ERROR):
                sys.exit(f"{name} is wrong: it differs by {error}")
        first.unlink()
        return errors

    def _memmaps(self) -> Any:
        return written(self.work / f"{MEMMAPS}.npy")

    def _ours(self, name: str, options: Sequence[str], *, limited: bool) -> Run:
        shutil.rmtree(self._output(name) / "embeddings", ignore_errors=True)
        command = ours.command(self._job(name), "1x1")
        took, group = self._limited([*command[1:], *options], limited=limited)
        report = ours.report(took.stdout)
        (memory,), (worker,) = report["memory"], report["workers"]
        return _seconds(took, report["total_seconds"]) | {
            "infer": report["stages"]["infer"],
            "peak": memory["peak_bytes"] - memory["baseline_bytes"],
            "planned": memory["planned_bytes"],
            "group": group,
            "wrote": worker["scratch_bytes_written"],
            "read": worker["scratch_bytes_read"],
        }

    def _limited(self, words: Sequence[Any], *, limited: bool) -> tuple[Took, int]:
        """A Python command, and the most that its group held; 0 without a group."""
        command = [sys.executable, *map(str, words)]
        with self._group() if limited else nullcontext() as group:
            took = self._run(command if group is None else group.entering(command), False, {})
            return took, 0 if group is None else group.peak_bytes

    def _group(self) -> AbstractContextManager[MemoryGroup | None]:
        """A group with the memory of a worker and of what runs beside it; None without root."""
        limit = machine_bytes(self.memory - IMPORTS_BYTES, 1)
        return memory_group(limit) if LIMITS else nullcontext()

    @property
    def _memory(self) -> list[str]:
        return ["--memory", f"{self.memory >> 20}MiB"]

    def _output(self, name: str) -> Path:
        return self.work / name.replace(" ", "-")

    def _job(self, name: str) -> Path:
        job = self.write_job(self.data, self.conv, self.features, self._output(name))
        manifest = yaml.safe_load(job.read_text())
        manifest["spec"]["refresh"] = {"mode": "full", "resume": "never"}
        manifest["spec"]["output"] |= {"compare": False, "keepVersions": 1}
        manifest["spec"]["inference"] = {"checkedRows": 0}
        job.write_text(yaml.safe_dump(manifest))
        return job


def _seconds(took: Took, work: float) -> Run:
    cpu = took.user + took.system
    return {"wall": took.wall, "work": work, "cpu": cpu, "others": took.others}


def bandwidth(folder: Path) -> Run:
    """Bytes per second of a file that is written in sequence and read, as scratch files are."""
    file = ScratchFile(folder, DISK_BYTES)
    piece = empty_pages(PIECE_BYTES)
    piece[:] = np.frombuffer(np.random.default_rng(0).bytes(PIECE_BYTES), np.uint8)
    found: Run = {}
    for name, move in (("write", file.write), ("read", file.read)):
        start = time.perf_counter()
        for at in range(0, file.size, PIECE_BYTES):
            move(at, piece)
        found[name] = file.size / (time.perf_counter() - start)
    file.close()
    return found


def measure(case: OutOfCore, rounds: int) -> Run:
    """Medians of each system and the disk, ratios to the run in memory, shares of the plan."""
    planned, problem = case.planned()
    systems: dict[str, Callable[[], Run]] = {IN_MEMORY: case.in_memory}
    if planned is None:
        print(f"{case.conv} is not measured on disk: {problem}", file=sys.stderr)
    else:
        systems[ON_DISK] = case.on_disk
    systems[MEMMAPS] = case.memmaps
    disk = {"disk": lambda: bandwidth(case.scratch)}
    runs = alternate(disk | systems, 1, f"{case.data.name} {case.conv}, compared,")
    errors = case.errors(list(systems))
    if rounds:
        runs = alternate(disk | systems, rounds, f"{case.data.name} {case.conv}")
    medians = {name: middle(of) for name, of in runs.items()}
    for name in systems:
        for key in ("wall", "work", "infer"):
            medians[name][f"{key}_ratio"] = ratio(runs[name], runs[IN_MEMORY], key)
        medians[name]["max_error"] = errors[name]
    if planned is not None:
        _beside_plan(medians[ON_DISK], planned, medians["disk"])
    return {"problem": "" if planned else problem, "disk": medians.pop("disk"), "systems": medians}


def _beside_plan(run: Run, planned: Run, disk: Run) -> None:
    run["wrote_of_plan"] = run["wrote"] / planned["written_bytes"]
    run["read_of_plan"] = run["read"] / planned["read_bytes"]
    run["bound"] = run["wrote"] / disk["write"] + run["read"] / disk["read"]


def show(title: str, case: Run) -> None:
    """A table of one case; bytes in MiB."""
    rows: list[list[Any]] = []
    for name, of in case["systems"].items():
        shown = {key: of[key] / 2**20 for key in BYTES if of.get(key)}
        rows.append([name, *((of | shown).get(key, "") for key in KEYS)])
    print(f"\n{title}\n\n" + table(["system", *KEYS], rows))
    write, read = (case["disk"][key] / 1e9 for key in ("write", "read"))
    print(f"\nthe disk writes {write:.2f} GB/s and reads {read:.2f}", flush=True)


def main() -> None:
    """Measure all asked-for models."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, nargs="+", default=[20], help="2^scale nodes")
    parser.add_argument("--conv", nargs="+", default=["gcn"], choices=["gcn", "gat"])
    parser.add_argument("--memory", type=parse_memory, default="1GiB", help="as of embertide run")
    parser.add_argument(
        "--scratch", type=Path, help="folder on a local disk; default: temporary files"
    )
    parser.add_argument("--rounds", type=int, default=3, help="0: times of the compared round")
    parser.add_argument("--settle", type=float, default=2.0, help="idle seconds before each run")
    parser.add_argument("--work", type=Path, help="where data sets are kept between calls")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    given = parser.parse_args()
    if not LIMITS:
        print("no memory group: not root, or no such cgroup; runs have no limit", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        cases: list[Run] = []
        for scale, conv in product(given.scale, given.conv):
            data = make((given.work or Path(folder)) / f"rmat-{scale}", scale=scale)
            scratch = given.scratch or Path(folder)
            work = Path(folder) / conv
            case = OutOfCore(data, work, conv, given.settle, given.memory, scratch)
            about = {"scale": scale, "conv": conv, "memory": given.memory, "limited": LIMITS}
            cases.append(about | measure(case, given.rounds))
            limit = "" if LIMITS else ", without a limit"
            show(f"scale {scale}, {conv}, {given.memory >> 20} MiB{limit}", cases[-1])
            shutil.rmtree(work)
        save("out_of_core", {"cases": cases}, given.out)


if __name__ == "__main__":
    main()
