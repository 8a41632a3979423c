"""Whole runs from a store and to it, beside plain transfers of the same objects.

    sudo .venv/bin/python -m benchmarks.store --scale 20 --gigabits 1

An S3 server has a network namespace, and whoever uses it another one; the link between them is
shaped in both directions. Ours are the stages of a whole run that read (``features``, ``ingest``)
and the one that writes (``publish``): rows are decoded and checked, and what is written is read
back before it is published. The plain script (``peers/plain_store.py``) fetches the same objects
into memory, and writes as many bytes as the embeddings have with their SHA-256. Server, link and
commands share the machine's cores.
"""

from __future__ import annotations

import json
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.dataset import make
from benchmarks.peers import ours
from benchmarks.support.commands import run
from benchmarks.support.kept import Kept, add_arguments
from benchmarks.support.network import NoNetwork
from benchmarks.support.rounds import Run, alternate, middle, ratio, table
from benchmarks.support.store import Store, store

KEYS = ("read", "write", "transfers", "transfers_ratio", "read_bytes", "written_bytes", "wall")
_READ = ("edges", "features/x", "features/ids")


def _seconds(read: float, write: float, **more: Any) -> Run:
    return {"read": read, "write": write, "transfers": read + write, **more}


def _ours(at: Store, conv: str, grid: str, work: Path) -> Run:
    """A whole run's seconds in the stages that read and write, and what it transferred."""
    job = ours.write_store_job(at.root, conv, at.storage, work)
    took = run([*at.inside, *ours.command(job, grid)])
    report = ours.report(took.stdout)
    stages, stored = report["stages"], report["storage"]
    return _seconds(
        stages["features"] + stages["ingest"],
        stages["publish"],
        read_bytes=stored["bytes_read"],
        written_bytes=stored["bytes_written"],
        wall=took.wall,
        stages=stages,
        others=took.others,
    )


def _plain(at: Store, size: int) -> Run:
    """The same objects, and as many bytes."""
    words = ["--endpoint", at.server.endpoint, "--region", at.server.region]
    words += ["--bucket", at.server.bucket, "--prefix", *(f"data/{name}/" for name in _READ)]
    words += ["--bytes", str(size), "--out", "plain"]
    module = [sys.executable, "-m", "benchmarks.peers.plain_store"]
    took = run([*at.inside, *module, *words])
    found = json.loads(took.stdout.splitlines()[-1])
    return _seconds(
        found["stages"]["read"],
        found["stages"]["write"],
        read_bytes=found["bytes"],
        written_bytes=size,
        wall=took.wall,
        others=took.others,
    )


def measure(
    at: Store, data: Path, work: Path, conv: str, grids: list[str], rounds: int
) -> dict[str, Run]:
    """System -> medians, and ratios to plain transfers."""
    sizes = json.loads((data / "dataset.json").read_text())
    written = sizes["nodes"] * (4 * sizes["width"] + 8)
    systems = {"plain": partial(_plain, at, written)}
    systems |= {f"ours {grid}": partial(_ours, at, conv, grid, work) for grid in grids}
    runs = alternate(systems, rounds, f"{data.name} {conv}")
    found = {name: middle(of) | {"runs": len(of)} for name, of in runs.items()}
    for name, of in runs.items():
        found[name]["transfers_ratio"] = ratio(of, runs["plain"], "transfers")
    return found


def main() -> None:
    """Measure at all asked-for rates."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=18, help="2^scale nodes, 128 columns each")
    parser.add_argument("--conv", default="gcn", choices=["gcn", "gat"])
    parser.add_argument("--grid", nargs="+", default=["1x1", "2x1"])
    parser.add_argument("--gigabits", nargs="+", type=float, default=[1.0], help="of the link")
    parser.add_argument("--loopback", action="store_true", help="no namespaces, nothing shaped")
    parser.add_argument("--rounds", type=int, default=3)
    add_arguments(parser)
    given = parser.parse_args()
    about = {"scale": given.scale, "conv": given.conv}
    kept = Kept("store", about, out=given.out, resume=given.resume, minutes=given.minutes)
    cases = [{"gigabits": rate} for rate in ([0.0] if given.loopback else given.gigabits)]
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        data = make((given.work or Path(folder)) / f"rmat-{given.scale}", scale=given.scale)
        folders = [*_READ, f"models/{given.conv}"]
        try:
            with store(data, folders, Path(folder), loopback=given.loopback) as at:
                for case in kept.missing(cases, lambda case: case):
                    if at.network is not None:
                        at.network.shape(case["gigabits"])
                    work = Path(folder) / "job"
                    systems = measure(at, data, work, given.conv, given.grid, given.rounds)
                    kept.add({**case, "systems": systems})
                    rows: list[list[Any]] = [[n, *map(of.get, KEYS)] for n, of in systems.items()]
                    print(table([f"{case['gigabits']:g} Gbit/s", *KEYS], rows), flush=True)
        except NoNetwork as error:
            sys.exit(f"{error}; or without a shaped link: --loopback")


if __name__ == "__main__":
    main()
