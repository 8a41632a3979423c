"""What comparing a version with the current one and the self-check cost, as shares of a whole run.

    .venv/bin/python -m benchmarks.comparing --scale 18 --rounds 5

Whole runs on one worker publish parquet over a version of the same inputs, with and without the
comparison, and without the self-check too, in turns; every row is compared. ``read`` is what
reading the current version once takes, with a thread for each core: the least that a comparison of
all rows can cost. ``checked`` is the seconds of the self-check, ``of_run`` its share of the work.
``cpu`` is of the whole command, with its imports; on a machine that others use, its difference says
more than seconds do.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

import yaml

from benchmarks.dataset import make
from benchmarks.peers import ours
from benchmarks.support.rounds import Run, alternate, middle, save, table
from benchmarks.whole_runs import Case
from embertide.readers.pool import map_splits
from embertide.spec.version_names import version_uri
from embertide.storage.opening import open_storage
from embertide.versions.catalog import latest
from embertide.versions.manifest import read_manifest, types_in
from embertide.versions.parts import PartDigest
from embertide.versions.reading import read_part

KEYS = (
    "work", "cpu", "publish", "comparison", "share", "read", "of_read", "checked", "of_run"
)  # fmt: skip


class Compared(Case):
    """Runs over an output that has a version already."""

    def over(self, output: Path, *, compare: bool, check: bool = True) -> Run:
        """Publish once more; seconds of the work, of its last stage, and of what is compared."""
        job = ours.write_job(self.data, self.conv, self.features, output)
        manifest = yaml.safe_load(job.read_text())
        spec = manifest["spec"]
        spec["output"] |= {"format": "parquet", "compare": compare, "keepVersions": 1}
        spec["refresh"] = {"mode": "full"}
        if not check:
            spec.setdefault("inference", {})["checkedRows"] = 0
        job.write_text(yaml.safe_dump(manifest))
        took = self._run(ours.command(job, "1x1"), False, {})
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


def read_current(output: Path) -> float:
    """Seconds of reading all rows of the current version, with a thread for each core."""
    storage, uri = open_storage(), f"file://{output / 'embeddings'}"
    version = latest(storage, uri).version
    (of_type,) = types_in(read_manifest(storage, uri, version)[0])

    def read(part: PartDigest) -> int:
        parts = read_part(storage, version_uri(uri, version), part, of_type.dim)
        return sum(len(ids) for ids, _ in parts)

    began = time.perf_counter()
    rows = sum(map_splits(of_type.digests, read, os.cpu_count() or 1))
    assert rows == of_type.rows
    return time.perf_counter() - began


def measure(case: Compared, rounds: int) -> dict[str, Run]:
    """With both, without the comparison, and without either: medians."""
    output = case.work / "compared"
    case.over(output, compare=False)

    def compared() -> Run:
        read = read_current(output)
        run = case.over(output, compare=True)
        return run | {"read": read, "of_read": run["comparison"] / read}

    variants = {
        "compared": compared,
        "checked": lambda: case.over(output, compare=False),
        "alone": lambda: case.over(output, compare=False, check=False),
    }
    return {
        name: middle(runs) for name, runs in alternate(variants, rounds, case.data.name).items()
    }


def main() -> None:
    """Measure all asked-for scales."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, nargs="+", default=[18], help="2^scale nodes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--settle", type=float, default=2.0, help="idle seconds before each run")
    parser.add_argument("--work", type=Path, help="where data sets are kept between calls")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        cases: list[Run] = []
        for scale in given.scale:
            data = make((given.work or Path(folder)) / f"rmat-{scale}", scale=scale)
            case = Compared(data, Path(folder), "gcn", "npy", given.settle)
            systems = measure(case, given.rounds)
            sizes = json.loads((data / "dataset.json").read_text())
            cases.append({"scale": scale, "nodes": sizes["nodes"], "systems": systems})
            rows: list[list[Any]] = [
                [name, *(of.get(key, "") for key in KEYS)] for name, of in systems.items()
            ]
            print(table([f"scale {scale}", *KEYS], rows), flush=True)
        save("comparing", {"cases": cases}, given.out)


if __name__ == "__main__":
    main()
