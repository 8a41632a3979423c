"""Embertide's job for the peers' work: the same files in, embeddings published as npy."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml


def write_job(data: Path, conv: str, features: str, output: Path) -> Path:
    """A manifest beside its output; returns it."""
    if features == "npy":
        given = {
            "uri": str(data / "features" / "x"),
            "format": "npy",
            "idsUri": str(data / "features" / "ids"),
        }
    else:
        given = {
            "uri": str(data / "features-parquet"),
            "format": "parquet",
            "idColumn": "id",
            "vectorColumn": "x",
        }
    edges = {"uri": str(data / "edges"), "format": "parquet", "selfLoops": "add"}
    spec = {
        "input": {"edges": [edges], "nodes": [{"ids": "dense", "features": given}]},
        "model": {"uri": str(data / "models" / conv)},
        "output": {"uri": str(output / "embeddings"), "format": "npy"},
    }
    head = {"apiVersion": "embertide.dev/v1alpha1", "kind": "EmbeddingJob"}
    output.mkdir(parents=True, exist_ok=True)
    job = output / "job.yaml"
    job.write_text(yaml.safe_dump({**head, "metadata": {"name": "benchmark"}, "spec": spec}))
    return job


def command(job: Path, grid: str, threads: int = 0) -> list[str]:
    """The command line; its last line of output is the report."""
    words = [sys.executable, "-m", "embertide", "run", str(job), "--grid", grid]
    words += ["--threads", str(threads)] if threads else []
    return [*words, "--json", "--quiet"]


def report(stdout: str) -> dict[str, Any]:
    """The report of a command that succeeded."""
    found: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return found
