"""``embertide.plan`` and ``embertide.run`` in programs as people write them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.small_job import NODES, SmallJob

pytestmark = pytest.mark.distributed

# No `if __name__ == "__main__"`: a process that ran this program again would count and run too.
PROGRAM = """
import sys, yaml
from pathlib import Path
import embertide

with open("started", "a") as started:
    started.write("once ")
print(embertide.plan("job.yaml", grid="2x1").grid)
seen = []
first = embertide.run("job.yaml", grid="2x1", on_progress=seen.append)
job = yaml.safe_load(Path("job.yaml").read_text())
second = embertide.run(embertide.EmbeddingJob.model_validate(job, context={"base": Path.cwd()}))
assert [info.version for info in embertide.list_versions("embeddings")] == [
    first.version, second.version
]
print(first.rows, str(first.grid), str(second.grid), len(embertide.read("embeddings")))
print(seen[0].stage, seen[-1].stage)
try:
    embertide.run("job.yaml", grid="13x1")
except embertide.EmbertideError as error:
    print(type(error).__name__, error)
"""


def test_a_script_plans_runs_twice_and_reads(tmp_path: Path) -> None:
    SmallJob.make(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    planned, ran, stages, refused = ended.stdout.splitlines()
    assert planned == "2x1"
    assert ran == f"{NODES} 2x1 1x1 {NODES}"
    assert stages.split()[0] == "start"
    assert refused.startswith(f"GridError grid 13x1 has 13 workers but the graph has only {NODES}")
    assert (tmp_path / "started").read_text() == "once "
