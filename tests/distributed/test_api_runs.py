"""``import embertide`` in programs as people write them, and as the documents show them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.patience import WAIT_SECONDS
from tests.support.small_job import NODES, SmallJob

pytestmark = pytest.mark.distributed

# No `if __name__ == "__main__"`: a process that ran this program again would count and run too.
PROGRAM = """
import yaml
from pathlib import Path
import embertide

with open("started", "a") as started:
    started.write("once ")
print(embertide.plan("job.yaml", grid="2x1").grid)
seen = []
first = embertide.run("job.yaml", grid="2x1", on_progress=seen.append)
job = yaml.safe_load(Path("job.yaml").read_text())
del job["spec"]["refresh"]
again = embertide.EmbeddingJob.model_validate(job, context={"base": Path.cwd()})
assert embertide.run(again).confirmed
second = embertide.run(again, force=True)
assert [info.version for info in embertide.list_versions("embeddings")] == [
    first.version, second.version
]
print(first.rows, str(first.grid), str(second.grid), len(embertide.read("embeddings")))
print(seen[0].stage, seen[-1].stage)
try:
    embertide.run("job.yaml", grid="13x1", force=True)
except embertide.EmbertideError as error:
    print(type(error).__name__, error)
"""


def output_of(program: str, folder: Path) -> str:
    """What a program prints that runs in ``folder``."""
    (folder / "program.py").write_text(program)
    ended = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def python_blocks(document: str) -> list[str]:
    """The Python programs of a document, each complete with its imports."""
    text = (ROOT / document).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_a_script_plans_runs_twice_and_reads(tmp_path: Path) -> None:
    SmallJob.make(tmp_path)
    planned, ran, stages, refused = output_of(PROGRAM, tmp_path).splitlines()
    assert planned == "2x1"
    assert ran == f"{NODES} 2x1 1x1 {NODES}"
    assert stages.split()[0] == "start"
    assert refused.startswith(f"GridError grid 13x1 has 13 workers but the graph has only {NODES}")
    assert (tmp_path / "started").read_text() == "once "


def test_the_documents_programs_run(tmp_path: Path) -> None:
    SmallJob.make(tmp_path)
    blocks = [
        block
        for name in ("docs/guide.md", "docs/python.md", "docs/trust.md")
        for block in python_blocks(name)
    ]
    assert len(blocks) >= 9
    program = "\n".join(
        ["import embertide", 'embertide.run("job.yaml")']
        + [f"exec({block!r}, {{}})" for block in blocks]
        + ["print('all ran')"]
    )
    assert output_of(program, tmp_path).endswith("all ran\n")
