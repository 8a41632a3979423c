"""Measure everything that docs/performance.md shows, in order of value, and write the page.

    sudo .venv/bin/python -m benchmarks.all --prepare --work /tmp/data
    sudo .venv/bin/python -m benchmarks.all --work /tmp/data --minutes 80

Each part is one of the other commands, which keeps every case as soon as it is measured. Called
again at the same commit on the same machine, it goes on where it was cut off; a part for which
the time no longer suffices is left for that call. ``--prepare`` only makes the data sets (4
minutes, 4 GiB), ``--list`` only says what would run. Root is needed for the shaped network.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.dataset import make
from benchmarks.support.kept import of_now
from benchmarks.support.rounds import RESULTS, ROOT, table
from benchmarks.typed_dataset import make as make_typed

STRONG, WEAK = 18, 15
"""Scales of the scaling command: of one graph for all, and of one worker's."""

FITTING = {
    "gcn": "torch_csr dgl_full_graph dgl_layer_wise pyg_layer_wise",
    "gat": "torch_csr dgl_layer_wise",
}
"""The peers for scale 22 in 24 GiB: DGL's GAT over all edges is killed there, and PyG's would take
four times the 5.9 GiB of scale 20."""


@dataclass(frozen=True)
class Part:
    """One call of a command.

    Attributes:
        minutes: what it takes on two cores.
        resumes: whether it keeps cases one by one, and reads data sets from ``--work``.
        scales: of the data sets that it reads.
        data: of which kind they are.
    """

    name: str
    words: str
    minutes: float
    scales: tuple[int, ...] = ()
    resumes: bool = True
    data: str = "rmat"

    def command(self, given: argparse.Namespace, minutes: float) -> list[str]:
        """The command line."""
        words = ["-m", f"benchmarks.{self.name}", *self.words.split()]
        words += ["--out", str(given.results / f"{self.name}.json")]
        if self.resumes:
            words += ["--resume", "--minutes", f"{minutes:.1f}"]
        if self.scales:
            words += ["--work", str(given.work)]
        return [sys.executable, "-W", "ignore", *words]


PARTS = (
    Part("end_to_end", "--scale 20 --conv gcn gat --rounds 3", 16, (20,)),
    *(
        Part(
            "end_to_end",
            f"--scale 22 --conv {conv} --rounds 1 --slow 6 --grid 1x1 --peers {peers}",
            10,
            (22,),
        )
        for conv, peers in FITTING.items()
    ),
    Part(
        "typed",
        "--scale 18 --conv rgcn hgt --grid 1x1 2x1 1x2 2x2 --rounds 3",
        5,
        (18,),
        data="typed",
    ),
    Part("primitives", "--scale 18 --rounds 3 --gigabits 1 0.25 5 25", 16),
    Part(
        "scaling",
        f"--scale {STRONG} --weak-scale {WEAK} --rounds 1",
        3,
        tuple(sorted({STRONG, *range(WEAK, WEAK + 4)})),
    ),
    Part("end_to_end", "--scale 16 --conv gcn gat --rounds 3 --settle 1", 4, (16,)),
    Part("graph", "--rounds 3", 6),
    Part("store", "--scale 20 --gigabits 1 5 --rounds 3", 6, (20,)),
    Part("kernels", "", 3, resumes=False),
)


def prepare(given: argparse.Namespace) -> None:
    """Make the data sets, the small ones first."""
    makers = {"rmat": make, "typed": make_typed}
    for scale, data in sorted({(scale, part.data) for part in PARTS for scale in part.scales}):
        print(f"data set {data}-{scale}", file=sys.stderr)
        makers[data](given.work / f"{data}-{scale}", scale=scale)


def measure(given: argparse.Namespace) -> bool:
    """Run the parts that fit into the time, and write the page after each; whether all did well."""
    begin, well = time.monotonic(), True
    for part in PARTS:
        left = max(0.0, given.minutes - (time.monotonic() - begin) / 60)
        if not part.resumes and _measured(given.results / f"{part.name}.json"):
            continue
        if left < part.minutes:
            print(f"{_title(part)}: left out, {left:.0f} minutes are left", file=sys.stderr)
            continue
        print(f"{_title(part)}, of {left:.0f} that are left", file=sys.stderr)
        well &= _run(part.command(given, left)) == 0
        well &= _run(_report(given)) == 0
    print(f"took {(time.monotonic() - begin) / 60:.1f} minutes", file=sys.stderr)
    return well


def _title(part: Part) -> str:
    return f"{part.name} {part.words}".rstrip() + f": about {part.minutes:g} minutes"


def _measured(path: Path) -> bool:
    return path.exists() and of_now(json.loads(path.read_text()))


def _report(given: argparse.Namespace) -> list[str]:
    words = ["--results", str(given.results), *(["--out", str(given.page)] if given.page else [])]
    return [sys.executable, "-m", "benchmarks.report", *words]


def _run(command: list[str]) -> int:
    print(f"+ {shlex.join(command)}", file=sys.stderr, flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> None:
    """Measure, prepare or list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=35, help="start nothing that takes longer")
    parser.add_argument("--work", type=Path, default=ROOT / ".cache" / "benchmarks")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of JSON files")
    parser.add_argument("--page", type=Path, help="default docs/performance.md")
    parser.add_argument("--prepare", action="store_true", help="only make the data sets")
    parser.add_argument("--list", action="store_true", help="only say what would run")
    given = parser.parse_args()
    if given.list:
        print(table(["part", "options", "minutes"], [[p.name, p.words, p.minutes] for p in PARTS]))
    elif given.prepare:
        prepare(given)
    elif not measure(given):
        sys.exit("a part failed: see above; the others are kept")


if __name__ == "__main__":
    main()
