"""A scratch file whose contents are lost while the result is read where it is mapped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from embertide.edge.synth.job import synthesize
from embertide.edge.synth.options import SynthOptions
from embertide.errors import StorageError
from embertide.io.storage.opening import open_storage
from embertide.launch.run_folder import RunFolder
from tests.support.paths import ROOT
from tests.support.patience import WAIT_SECONDS

pytestmark = pytest.mark.distributed

NODES, WIDTH = 1 << 17, 256
"""A result of 128 MiB, which is read for long enough."""
MEMORY = "470MiB"


@pytest.fixture
def runs() -> Iterator[Path]:
    """Not below the test's own folder, whose path can be too long for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="em-") as folder:
        yield Path(folder)


def test_a_run_whose_result_is_lost_ends_with_an_error_of_its_scratch_folder(
    tmp_path: Path, runs: Path
) -> None:
    job, scratch = tmp_path / "job", tmp_path / "scratch"
    scratch.mkdir()
    make_job(job)
    words = ["run", str(job / "job.yaml"), "--memory", MEMORY, "--scratch", str(scratch)]
    run = subprocess.Popen(
        [sys.executable, "-m", "embertide", *words],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(runs)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        await_stage(runs, "publish", run)
        assert cut_files(psutil.Process(run.pid), scratch)
        _, errors = run.communicate(timeout=WAIT_SECONDS)
    finally:
        run.kill()
        run.wait()
    message = " ".join(errors.split())
    assert run.returncode == StorageError.exit_code, errors[-2000:]
    assert f"scratch folder {scratch}: " in message
    assert "was killed by SIGBUS during publish" in message
    assert "that the disk did not give back" in message
    assert "Traceback" not in message
    assert not list((job / "embeddings").glob("LATEST"))
    assert not list(scratch.iterdir())


def make_job(folder: Path) -> None:
    """Wide rows and few edges."""
    options = SynthOptions(nodes=NODES, edges=NODES, width=16, hidden=16, out=WIDTH, layers=1)
    synthesize(open_storage(None), folder.as_uri(), options)
    manifest = yaml.safe_load((folder / "job.yaml").read_text())
    manifest["spec"]["refresh"] = {"mode": "full"}
    manifest["spec"]["output"]["compare"] = False
    manifest["spec"]["inference"] = {"checkedRows": 0}
    (folder / "job.yaml").write_text(yaml.safe_dump(manifest))


def await_stage(runs: Path, stage: str, run: subprocess.Popen[str]) -> None:
    """Wait until a run's worker begins a stage."""
    until = time.monotonic() + WAIT_SECONDS
    while not any(RunFolder(path.parent).last_stage() == stage for path in progress_of(runs)):
        assert run.poll() is None, run.communicate()[1][-2000:]
        assert time.monotonic() < until
        time.sleep(0.002)


def progress_of(runs: Path) -> list[Path]:
    return list(runs.glob("*/progress.jsonl"))


def cut_files(run: psutil.Process, scratch: Path) -> int:
    """Cut the files that processes of a run have in a folder, which stand still meanwhile."""
    count = 0
    for process in run.children(recursive=True):
        files = [path for path in descriptors(process) if is_below(path, scratch)]
        if not files:
            continue
        process.send_signal(signal.SIGSTOP)
        for path in files:
            with path.open("r+b") as file:
                file.truncate(0)
        process.send_signal(signal.SIGCONT)
        count += len(files)
    return count


def descriptors(process: psutil.Process) -> list[Path]:
    return list(Path(f"/proc/{process.pid}/fd").iterdir())


def is_below(descriptor: Path, folder: Path) -> bool:
    """Whether an open file, which has no name by now, is in a folder."""
    try:
        return str(descriptor.readlink()).startswith(f"{folder}/")
    except OSError:
        return False
