"""Reading features and publishing, beside plain reads and writes of as many bytes with a digest.

    .venv/bin/python -m benchmarks.files --scale 18 --features npy parquet

Ours are the stages ``features`` and ``publish`` of a whole run on one worker, from cold files:
rows are checked, what is written is read back and verified, and a version is published. The disk
begins with the first 256 MiB of features while the run starts, before its stages are timed. The
plain script (``peers/plain_files.py``) reads the same files into memory on all cores, writes the
rows as npy with their SHA-256, and syncs.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from benchmarks.dataset import make, write_parquet_features
from benchmarks.support.rounds import Run, alternate, middle, ratio, save, table
from benchmarks.whole_runs import Case

STAGES = ("features", "publish")


def _of_files(run: Run) -> Run:
    """A run's seconds in the stages that read features and publish, and their sum."""
    stages = {name: run["stages"][name] for name in STAGES}
    return stages | {"files": sum(stages.values()), "others": run["others"]}


def measure(case: Case, rounds: int) -> dict[str, Run]:
    """Of ours and of the plain script: medians, and ratios to the latter."""
    runs = alternate(
        {
            "plain": lambda: _of_files(case.peer("plain_files")),
            "ours": lambda: _of_files(case.grid("1x1")),
        },
        rounds,
        f"{case.data.name} {case.features}",
    )
    found = {name: middle(of) for name, of in runs.items()}
    for name, of in runs.items():
        for key in (*STAGES, "files"):
            found[name][f"{key}_ratio"] = ratio(of, runs["plain"], key)
    return found


def main() -> None:
    """Measure all asked-for formats."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=18, help="2^scale nodes, 128 columns each")
    parser.add_argument("--features", nargs="+", default=["npy"], choices=["npy", "parquet"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settle", type=float, default=2.0, help="idle seconds before each run")
    parser.add_argument("--work", type=Path, help="where data sets are kept between calls")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        work = given.work or Path(folder)
        data = make(work / f"rmat-{given.scale}", scale=given.scale)
        cases: list[Run] = []
        for features in given.features:
            if features == "parquet":
                write_parquet_features(data / "features")
            case = Case(data, Path(folder), "gcn", features, given.settle)
            systems = measure(case, given.rounds)
            cases.append({"scale": given.scale, "features": features, "systems": systems})
            keys = [*STAGES, "files", *(f"{key}_ratio" for key in (*STAGES, "files"))]
            rows: list[list[Any]] = [[name, *(of[k] for k in keys)] for name, of in systems.items()]
            print(table([f"{features} features", *keys], rows))
        save("files", {"cases": cases}, given.out)


if __name__ == "__main__":
    main()
