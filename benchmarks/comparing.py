"""What comparing a version with the current one and the self-check cost, as shares of a whole run.

    .venv/bin/python -m benchmarks.comparing --scale 18 --rounds 5
    sudo .venv/bin/python -m benchmarks.comparing --scale 18 --gigabits 5

Whole runs on one worker publish parquet over a version of the same inputs, in turns: ``all`` with
comparison, gate, deltas and self-check, ``compared`` without gate and deltas, ``checked`` with the
self-check only, ``alone`` with none of them. Every row is compared. ``read`` is what reading the
current version once takes, with a thread for each core: the least that a comparison of all rows
can cost; ``allowed`` is that and 5% of the work of ``alone``, ``added`` is the work beyond that of
``alone``. ``checked`` is the seconds of the self-check, ``of_run`` its share of the work. ``cpu``
is of the whole command, with its imports; on a machine that others use, its difference says more
than seconds do. With ``--gigabits`` all is read from an S3 server and published to it, which is
behind a link of that rate, as in ``benchmarks.store``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from benchmarks.dataset import make
from benchmarks.peers import ours
from benchmarks.support.network import NoNetwork
from benchmarks.support.rounds import Run, alternate, middle, save, table
from benchmarks.support.store import Store, store
from benchmarks.whole_runs import Case

KEYS = (
    "work", "cpu", "publish", "comparison", "share", "read", "of_read", "checked", "of_run",
    "added", "allowed", "cpu_added",
)  # fmt: skip
_CONV = "gcn"
_RUN_SHARE = 0.05
"""What may be added to a run beside reading the current version once."""
_STORED = ("edges", "features/x", "features/ids", f"models/{_CONV}")


class Compared(Case):
    """Runs over an output that has a version already, on this machine or in a store.

    Args:
        at: the store; None for files.
    """

    def __init__(self, data: Path, work: Path, settle: float, at: Store | None) -> None:
        super().__init__(data, work, _CONV, "npy", settle)
        self._at, self._inside = at, [] if at is None else [*at.inside]

    def over(
        self, *, compare: bool = True, check: bool = True, deltas: bool = True, gate: bool = True
    ) -> Run:
        """Publish once more; seconds of the work, of its last stage, and of what is compared."""
        job = self._job()
        manifest = yaml.safe_load(job.read_text())
        spec = manifest["spec"]
        spec["output"] |= {"format": "parquet", "compare": compare, "keepVersions": 1}
        spec["output"] |= {"delta": {}} if deltas else {}
        spec["output"] |= {"gate": {}} if gate else {}
        spec["refresh"] = {"mode": "full"}
        if not check:
            spec.setdefault("inference", {})["checkedRows"] = 0
        job.write_text(yaml.safe_dump(manifest))
        took = self._run([*self._inside, *ours.command(job, "1x1")], False, {})
        report = ours.report(took.stdout)
        seconds, checked = report["comparison"]["seconds"], report["self_check"]["seconds"]
        return {
            "work": report["total_seconds"],
            "publish": report["stages"]["publish"],
            "cpu": took.user + took.system,
            "comparison": seconds,
            "share": seconds / report["total_seconds"],
            "checked": checked,
            "of_run": checked / report["total_seconds"],
        }

    def read(self) -> Run:
        """Seconds of reading all rows of the current version."""
        (uri, *store) = (
            [f"file://{self._output / 'embeddings'}"]
            if self._at is None
            else [
                f"{self._at.root}/embeddings",
                "--endpoint", self._at.server.endpoint, "--region", self._at.server.region,
            ]
        )  # fmt: skip
        module = [sys.executable, "-m", "benchmarks.peers.read_current"]
        took = self._run([*self._inside, *module, uri, *store], False, {})
        seconds: Run = json.loads(took.stdout.splitlines()[-1])
        return seconds

    @property
    def _output(self) -> Path:
        return self.work / "compared"

    def _job(self) -> Path:
        if self._at is None:
            return ours.write_job(self.data, self.conv, self.features, self._output)
        return ours.write_store_job(self._at.root, self.conv, self._at.storage, self._output)


def measure(case: Compared, rounds: int) -> dict[str, Run]:
    """Each variant: medians."""
    none = {"compare": False, "deltas": False, "gate": False}
    case.over(**none)

    def compared(**more: bool) -> Run:
        read = case.read()
        run = case.over(**more)
        return run | read | {"of_read": run["comparison"] / read["read"]}

    variants: dict[str, Callable[[], Run]] = {
        "all": compared,
        "compared": partial(compared, deltas=False, gate=False),
        "checked": partial(case.over, **none),
        "alone": partial(case.over, **none, check=False),
    }
    runs = alternate(variants, rounds, case.data.name)
    systems = {name: middle(of) for name, of in runs.items()}
    alone = systems["alone"]
    for of in systems.values():
        of["added"], of["cpu_added"] = (of[key] - alone[key] for key in ("work", "cpu"))
        if "read" in of:
            of["allowed"] = of["read"] + _RUN_SHARE * alone["work"]
    return systems


@contextmanager
def _place(data: Path, work: Path, gigabits: float | None) -> Iterator[Store | None]:
    """Where runs read and publish: a store behind a link of a rate, 0 for loopback; else files."""
    if gigabits is None:
        yield None
        return
    with store(data, list(_STORED), work, loopback=not gigabits) as at:
        if at.network is not None:
            at.network.shape(gigabits)
        yield at


def main() -> None:
    """Measure all asked-for scales."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, nargs="+", default=[18], help="2^scale nodes")
    parser.add_argument("--gigabits", type=float, help="of the link to an S3 server; 0: loopback")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settle", type=float, default=2.0, help="idle seconds before each run")
    parser.add_argument("--work", type=Path, help="where data sets are kept between calls")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    options = parser.parse_args()
    cases: list[Run] = []
    for scale in options.scale:
        with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
            work = Path(folder)
            data = make((options.work or work) / f"rmat-{scale}", scale=scale)
            nodes = json.loads((data / "dataset.json").read_text())["nodes"]
            try:
                with _place(data, work, options.gigabits) as at:
                    systems = measure(Compared(data, work, options.settle, at), options.rounds)
            except NoNetwork as error:
                sys.exit(f"{error}; or without a shaped link: --gigabits 0")
        about = {"scale": scale, "nodes": nodes, "gigabits": options.gigabits}
        cases.append({**about, "systems": systems})
        rows: list[list[Any]] = [
            [name, *(of.get(key, "") for key in KEYS)] for name, of in systems.items()
        ]
        print(table([f"scale {scale}", *KEYS], rows), flush=True)
    save("comparing", {"cases": cases}, options.out)


if __name__ == "__main__":
    main()
