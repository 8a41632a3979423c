"""Whole runs with less memory than their tensors take: from files to a version, within a limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml

import embertide
from embertide.edge.synth.job import synthesize
from embertide.edge.synth.options import SynthOptions
from embertide.engine.planning.estimate import estimate_job
from embertide.engine.planning.keeping import NO_MEMORY
from embertide.engine.planning.next_version import KEEPS_NONE
from embertide.engine.planning.sizing import IMPORTS_BYTES, machine_bytes
from embertide.errors import StorageError
from embertide.io.storage.opening import open_storage
from embertide.spec.manifest import load_manifest
from tests.support.full_disk import end_without_room
from tests.support.memory_group import LIMITS, run_limited

pytestmark = pytest.mark.distributed

MIB = 1 << 20
NODES, EDGES, WIDTH = 1 << 18, 1 << 20, 128
MEMORY = 520
"""MiB of a worker; with all tensors in memory it needs a fourth more."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose features, 128 MiB, are in another order than its nodes."""
    folder = tmp_path_factory.mktemp("spilled")
    options = SynthOptions(nodes=NODES, edges=EDGES, ids="int64", layers=2)
    synthesize(open_storage(None), folder.as_uri(), options)
    manifest = yaml.safe_load((folder / "job.yaml").read_text())
    manifest["spec"]["output"]["compare"] = False
    manifest["spec"]["refresh"] = {"mode": "full"}
    (folder / "job.yaml").write_text(yaml.safe_dump(manifest))
    return folder / "job.yaml"


def run(job: Path, *options: str, limit: int | None = None) -> dict[str, Any]:
    """The report of a run in another process."""
    done = run_limited(limit, ["-m", "embertide", "run", str(job), "--json", *options])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def test_a_spilled_run_keeps_to_its_memory_and_publishes_the_same_bits(
    job: Path, tmp_path: Path
) -> None:
    whole = run(job)
    (of_whole,) = whole["memory"]
    assert of_whole["peak_bytes"] > MEMORY * MIB
    # With the page cache; the run in memory would be killed.
    limit = machine_bytes(MEMORY * MIB - IMPORTS_BYTES, 1)
    spilled = run(
        job, "--memory", f"{MEMORY}MiB", "--scratch", str(tmp_path), limit=limit if LIMITS else None
    )
    (memory,) = spilled["memory"]
    assert memory["planned_bytes"] <= MEMORY * MIB - IMPORTS_BYTES
    assert memory["peak_bytes"] - memory["baseline_bytes"] <= 1.1 * memory["planned_bytes"]
    (worker,) = spilled["workers"]
    # Features, as they were read, by panels and in order, and what two layers make of them.
    assert worker["scratch_bytes_written"] == 7 * NODES * WIDTH * 4
    assert worker["scratch_bytes_read"] > worker["scratch_peak_bytes"] > 0
    output = str(job.parent / "embeddings")
    (ids, vectors), (same_ids, same_vectors) = (
        embertide.read(output, version=report["version"]).to_numpy() for report in (whole, spilled)
    )
    assert np.array_equal(ids, same_ids)
    assert np.array_equal(vectors, same_vectors)
    assert not list(tmp_path.iterdir())


def test_a_run_with_its_edges_on_disk_keeps_no_rows_for_the_next_one(
    job: Path, tmp_path: Path
) -> None:
    manifest = yaml.safe_load(job.read_text())
    manifest["spec"]["refresh"] = {"keep": True, "mode": "full"}
    keeping = job.with_name("keeping.yaml")
    keeping.write_text(yaml.safe_dump(manifest))
    report = run(keeping, "--memory", f"{MEMORY}MiB", "--scratch", str(tmp_path))
    why = "edges are on disk, since they exceed the memory of a worker"
    assert (report["refresh"]["why"], report["refresh"]["keeps"]) == (why, None)
    manifest["spec"]["workers"] = {"memory": f"{MEMORY}Mi"}
    keeping.write_text(yaml.safe_dump(manifest))
    assert KEEPS_NONE.format(why=why) in estimate_job(load_manifest(keeping)).notes
    assert not (job.parent / "embeddings" / "_layers").exists()


def test_a_run_keeps_nothing_where_only_that_would_be_refused(job: Path, tmp_path: Path) -> None:
    manifest = yaml.safe_load(job.read_text())
    manifest["spec"]["refresh"] = {"mode": "full", "resume": "always"}
    manifest["spec"]["workers"] = {"memory": "1Mi"}
    wanted = load_manifest(yaml.safe_dump(manifest))
    budget = estimate_job(wanted.resuming("never")).budget
    assert budget is not None
    manifest["spec"]["workers"] = {"memory": f"{-(-budget.needed_bytes // MIB)}Mi"}
    tight = job.with_name("tight.yaml")
    tight.write_text(yaml.safe_dump(manifest))
    estimate = estimate_job(load_manifest(tight))
    assert (estimate.problem, estimate.kept_bytes) == ("", 0)
    assert NO_MEMORY in estimate.notes
    report = run(tight, "--scratch", str(tmp_path))
    assert NO_MEMORY in report["warnings"]
    (memory,) = report["memory"]
    assert memory["peak_bytes"] - memory["baseline_bytes"] <= 1.1 * memory["planned_bytes"]
    assert not (job.parent / "embeddings" / "_layers").exists()


def test_rows_of_some_nodes_are_computed_alone_beside_features_on_disk(
    job: Path, tmp_path: Path
) -> None:
    whole, output = run(job), str(job.parent / "embeddings")
    ids, vectors = embertide.read(output, version=whole["version"]).to_numpy()
    wanted = sorted(ids.tolist())[:: NODES // 20]
    manifest = yaml.safe_load(job.read_text())
    manifest["spec"]["inference"] = {"targets": {"ids": wanted}}
    some = job.with_name("some.yaml")
    some.write_text(yaml.safe_dump(manifest))
    limit = machine_bytes(MEMORY * MIB - IMPORTS_BYTES, 1) if LIMITS else None
    report = run(some, "--memory", f"{MEMORY}MiB", "--scratch", str(tmp_path), limit=limit)
    chosen, (memory,) = report["chosen"], report["memory"]
    assert (chosen["rows"], chosen["why"]) == (len(wanted), "")
    assert chosen["edges"] < chosen["all_edges"] / 100
    assert memory["peak_bytes"] - memory["baseline_bytes"] <= 1.1 * memory["planned_bytes"]
    # The features, as they were read.
    assert report["workers"][0]["scratch_bytes_written"] == NODES * WIDTH * 4
    found = {id_: row.tobytes() for id_, row in zip(ids.tolist(), vectors, strict=True)}
    some_ids, some_vectors = embertide.read(f"{output}/_targets").to_numpy()
    assert sorted(some_ids.tolist()) == wanted
    for id_, row in zip(some_ids.tolist(), some_vectors, strict=True):
        assert row.tobytes() == found[id_]


def test_a_disk_without_room_ends_the_run_and_publishes_nothing(job: Path, tmp_path: Path) -> None:
    """Where a file gets no room: past the largest size that this process may give one."""
    end_without_room(tmp_path, job, MEMORY, room=64, needed=128)


def test_a_disk_that_loses_its_files_ends_the_run_and_publishes_nothing(
    job: Path, tmp_path: Path
) -> None:
    """Reads in other threads fail: the files end before what was written there."""
    output = job.parent / "embeddings"
    before = sorted(output.rglob("*"))
    words = [sys.executable, "-m", "embertide", "run", str(job), "--memory", f"{MEMORY}MiB"]
    with subprocess.Popen(
        [*words, "--scratch", str(tmp_path)], stderr=subprocess.PIPE, text=True
    ) as process:
        # Features as they were read, and the file in which they are put in order.
        while len(scratch_files(process.pid, tmp_path)) < 2:
            assert process.poll() is None, "the run was over too soon"
            time.sleep(0.02)
        for path in scratch_files(process.pid, tmp_path):
            with suppress(FileNotFoundError):  # closed in the meantime
                os.truncate(path, 0)
        _, stderr = process.communicate()
    assert process.returncode == StorageError.exit_code, stderr[-2000:]
    message = " ".join(stderr.split())
    assert f"scratch folder {tmp_path}: a file of" in message
    assert "could not be read (the file ends too early)" in message
    assert "Traceback" not in message
    assert sorted(output.rglob("*")) == before


def scratch_files(process: int, folder: Path) -> list[Path]:
    """The files without a name, in a folder, of a process's descendants; each once."""
    files: dict[int, Path] = {}
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process).children(recursive=True):
            for path in Path(f"/proc/{child.pid}/fd").glob("*"):
                with suppress(OSError):
                    if path.readlink().parent == folder:
                        files[path.stat().st_ino] = path
    return list(files.values())
