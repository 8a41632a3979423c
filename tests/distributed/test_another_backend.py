"""A job whose inputs, model and output are in a kind of store that only tests have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import embertide
from tests.support.small_job import SmallJob

pytestmark = pytest.mark.distributed

PROGRAM = """
import sys
import tests.support.disk_store
import embertide
print(embertide.run(sys.argv[1], grid="2x1").version)
"""


def test_a_job_runs_on_another_backend(tmp_path: Path) -> None:
    """With one entry and one module: planned, read, computed and published, as from files."""
    job = SmallJob.make(tmp_path / "files")
    embertide.run(job.manifest, grid="2x1")
    expected, vectors = embertide.read(str(job.output)).to_numpy()
    there = f"disk://nas{job.folder}"
    job.write_manifest(
        input__edges__0__uri=f"{there}/edges/",
        input__nodes__0__features__uri=f"{there}/features/",
        model__uri=f"{there}/model/",
        output__uri=f"{there}/elsewhere/",
    )
    command = [sys.executable, "-W", "error", "-c", PROGRAM, job.manifest]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ids, found = embertide.read(str(job.folder / "elsewhere"), done.stdout.strip()).to_numpy()
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(found, vectors)
