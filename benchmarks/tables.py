"""The same files of edges as plain parquet, as a Delta table and as an Iceberg table.

    .venv/bin/python -m benchmarks.tables --edges 16000000

``read`` is a run's stages ``features``, ``ingest`` and ``csr``, in which workers read the files.
``total`` is the whole run, in which a table's metadata is looked up, ``wall`` the command with its
imports, those of the format's library too. Files are in the page cache: the disk is not measured.
"""

from __future__ import annotations

import shutil
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from benchmarks.graph_dataset import make_ids
from benchmarks.peers import ours
from benchmarks.support.commands import run
from benchmarks.support.rounds import Run, alternate, middle, ratio, save, table

STAGES = ("features", "ingest", "csr")
KEYS = (*STAGES, "read", "total", "wall")


def write_tables(data: Path) -> dict[str, dict[str, str]]:
    """Copies of a data set's edges with a table's metadata; format -> uri and format."""
    inputs = {"parquet": {"uri": str(data / "edges"), "format": "parquet"}}
    delta, iceberg = data / "delta", data / "iceberg"
    for folder in (delta, iceberg / "data"):
        if not folder.exists():
            shutil.copytree(data / "edges", folder)
    if not (delta / "_delta_log").exists():
        from deltalake import convert_to_deltalake

        convert_to_deltalake(delta)
    inputs["delta"] = {"uri": str(delta), "format": "delta"}
    inputs["iceberg"] = {"uri": _write_iceberg(iceberg), "format": "iceberg"}
    return inputs


def _write_iceberg(folder: Path) -> str:
    from pyiceberg.catalog.sql import SqlCatalog

    files = sorted((folder / "data").glob("*.parquet"))
    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{folder}")
    try:
        catalog.create_namespace("n")
        schema = pq.read_schema(files[0])
        made = catalog.create_table("n.t", schema, location=f"file://{folder}")
        made.add_files([f"file://{file}" for file in files])
        return str(made.metadata_location)
    finally:
        catalog.close()


def run_once(data: Path, output: Path, edges: dict[str, str]) -> Run:
    """Seconds of a run with these edges."""
    shutil.rmtree(output, ignore_errors=True)
    job = ours.write_ids_job(data, "int64", "parquet", output)
    written = yaml.safe_load(job.read_text())
    written["spec"]["input"]["edges"] = [edges]
    job.write_text(yaml.safe_dump(written))
    took = run(ours.command(job, "1x1"))
    report = ours.report(took.stdout)
    found = {name: report["stages"][name] for name in STAGES}
    whole = {"total": report["total_seconds"], "wall": took.wall, "others": took.others}
    return found | {"read": sum(found.values())} | whole


def main() -> None:
    """Measure all three in turns."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--edges", type=int, default=16_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, help="where the data set is kept between calls")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="embertide-bench-") as folder:
        data = (given.work or Path(folder)) / f"tables-{given.edges}"
        make_ids(data, "int64", "parquet", given.nodes, given.edges)
        inputs = write_tables(data)
        systems = {
            name: lambda edges=edges: run_once(data, Path(folder) / "out", edges)
            for name, edges in inputs.items()
        }
        runs = alternate(systems, given.rounds, data.name)
        found = {name: middle(of) for name, of in runs.items()}
        for name, of in runs.items():
            for key in ("read", "total", "wall"):
                found[name][f"{key}_ratio"] = ratio(of, runs["parquet"], key)
        save("tables", {"edges": given.edges, "systems": found}, given.out)
        keys = (*KEYS, "read_ratio", "total_ratio", "wall_ratio")
        rows: list[list[Any]] = [[name, *(of[key] for key in keys)] for name, of in found.items()]
        print(table(["edges", *keys], rows), flush=True)


if __name__ == "__main__":
    main()
