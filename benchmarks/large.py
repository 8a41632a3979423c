"""One run on a graph that is many times larger than its memory, from parquet to parquet.

    sudo .venv/bin/python -m benchmarks.large --memory 8GiB --work FOLDER

GCN with three layers, on one worker with ``--memory``, in a memory group of that size and the
processes beside a worker, where the page cache counts. By default a billion edges, for which
FOLDER and ``--scratch`` need about 45 GB together. Rows of all layers are computed a second time,
in float64 (``spec.inference.checkedRows``); ``error`` is the largest difference, and a run in which
it is too large fails. ``edges_a_core`` is edges times layers by seconds of the layers and cores.
``dollars`` is what the whole command's seconds cost at ``--price``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from benchmarks.dataset import LAYERS
from benchmarks.large_dataset import add_sizes, make
from benchmarks.peers import ours
from benchmarks.peers.work import THREADS
from benchmarks.support.commands import drop_cached, run
from benchmarks.support.rounds import Run, save, table
from embertide.engine.planning.sizing import IMPORTS_BYTES, machine_bytes
from embertide.spec.workers import parse_memory
from tests.support.memory_group import LIMITS, memory_group

PRICE = 0.1512
"""US dollars an hour, assumed for a machine with two cores, 16 GiB and a local NVMe disk, such as
AWS's r6id.large on demand."""
SHOWN = ("wall", "work", "infer", "cpu", "edges_a_core", "dollars", "error", "others")
BYTES = ("peak", "planned", "group", "wrote", "read")


def measure(data: Path, work: Path, memory: int, price: float) -> Run:
    """One run; seconds, bytes, and what follows from them."""
    if not LIMITS:
        sys.exit("this needs a memory group: run it as root")
    sizes = json.loads((data / "dataset.json").read_text())
    output = work / "embeddings"
    shutil.rmtree(output, ignore_errors=True)
    words = ["--memory", f"{memory >> 20}MiB", "--scratch", str(work)]
    command = [*ours.command(_job(data, output), "1x1"), *words]
    drop_cached(data)
    with memory_group(machine_bytes(memory - IMPORTS_BYTES, 1)) as group:
        took = run(group.entering(command))
        peak = group.peak_bytes
    report = ours.report(took.stdout)
    (held,), (worker,) = report["memory"], report["workers"]
    infer = report["stages"]["infer"]
    return {
        **{key: sizes[key] for key in ("nodes", "edges", "width")},
        "memory": memory,
        "wall": took.wall,
        "work": report["total_seconds"],
        "stages": report["stages"],
        "infer": infer,
        "cpu": took.user + took.system,
        "edges_a_core": LAYERS * sizes["edges"] / infer / THREADS,
        "dollars": took.wall / 3600 * price,
        "error": _error(report),
        "peak": held["peak_bytes"] - held["baseline_bytes"],
        "planned": held["planned_bytes"],
        "group": peak,
        "wrote": worker["scratch_bytes_written"],
        "read": worker["scratch_bytes_read"],
        "others": took.others,
    }


def _job(data: Path, output: Path) -> Path:
    """A manifest beside its output."""
    edges = {"uri": str(data / "edges"), "format": "parquet", "selfLoops": "addRemaining"}
    columns = {"idColumn": "id", "vectorColumn": "x"}
    features = {"uri": str(data / "features"), "format": "parquet", **columns}
    spec: dict[str, Any] = {
        "model": {"uri": str(data / "models" / "gcn")},
        "input": {"edges": [edges], "nodes": [{"ids": "dense", "features": features}]},
        "output": {"uri": str(output), "format": "parquet", "compare": False, "keepVersions": 1},
        "refresh": {"mode": "full", "resume": "never"},
    }
    output.mkdir(parents=True)
    job = output / "job.yaml"
    kind = {"apiVersion": "embertide.dev/v1alpha1", "kind": "EmbeddingJob"}
    job.write_text(yaml.safe_dump({**kind, "metadata": {"name": "large"}, "spec": spec}))
    return job


def _error(report: dict[str, Any]) -> float:
    """The largest error of rows that were computed a second time, by the rows' magnitude."""
    errors: list[float] = [rows["largest_error"] for rows in report["self_check"]["checked"]]
    return max(errors)


def show(result: Run) -> None:
    """Tables of a run; bytes in MiB."""
    print(f"\n{result['nodes']:,} nodes, {result['edges']:,} edges, {result['width']} columns\n")
    print(table(list(SHOWN), [[result[key] for key in SHOWN]]))
    print("\n" + table([f"{key} MiB" for key in BYTES], [[result[k] / 2**20 for k in BYTES]]))
    print("\n" + table(list(result["stages"]), [list(result["stages"].values())]), flush=True)


def main() -> None:
    """Measure it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_sizes(parser)
    parser.add_argument("--memory", type=parse_memory, default="8GiB", help="as of embertide run")
    parser.add_argument("--work", type=Path, required=True, help="for data set, scratch and output")
    parser.add_argument("--price", type=float, default=PRICE, help="dollars an hour")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    options = parser.parse_args()
    sizes = {"nodes": options.nodes, "edges": options.edges, "width": options.width}
    data = make(options.work / "large", **sizes)
    result = measure(data, options.work / "run", options.memory, options.price)
    show(result)
    save("large", result, options.out)


if __name__ == "__main__":
    main()
