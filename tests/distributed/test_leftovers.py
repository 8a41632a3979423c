"""What a killed run leaves: the next one removes it; and runs to one output, which take turns."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embertide.launch.leftovers import remove_unused, temporary_folder
from embertide.launch.output_lock import lock_path
from embertide.spec.workers import StorageSettings
from tests.support.commands import Running, await_nobody
from tests.support.patience import WAIT_SECONDS

pytestmark = pytest.mark.distributed

Start = Callable[..., Running]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that lasts long enough to be hit, and a small one."""
    folder = tmp_path_factory.mktemp("jobs")
    for name, scale in (("big", "16"), ("small", "8")):
        made = Running(folder, "synth", str(folder / name), "--scale", scale, "--quiet")
        assert made.done(WAIT_SECONDS).code == 0
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Commands that share a temporary folder, as those of one user do."""
    begun: list[Running] = []

    def run(job: Path, *options: str) -> Running:
        folder = tmp_path / str(len(begun))
        folder.mkdir()
        scratch = begun[0].scratch if begun else None
        arguments = ("run", str(job / "job.yaml"), "--force", "--grid", "1x1", "--json", *options)
        begun.append(Running(folder, *arguments, scratch=scratch))
        return begun[-1]

    yield run
    for running in begun:
        running.process.kill()  # where the test failed
        running.go_on()
        running.process.wait()


def _shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def _kill(run: Running) -> None:
    run.process.kill()
    run.go_on()  # to notice it, where they stand still
    run.process.wait()
    await_nobody(run.process.pid)


def _held(start: Start, job: Path, stage: str) -> Running:
    """A run that stands still in a stage; another one where a busy machine let it go on."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        run = start(job)
        run.await_stage(stage)
        run.hold()
        if _stage(run) == stage:
            return run
        assert time.monotonic() < deadline, run.output()
        _kill(run)
        shutil.rmtree(job / "embeddings", ignore_errors=True)


def _stage(run: Running) -> str:
    """The last one that a run has told."""
    text = run.output()
    events = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return str(events[-1].get("stage"))


def _await_message(run: Running, part: str) -> str:
    """Until a progress message has ``part``."""
    while True:
        text = run.output()
        for line in text[: text.rfind("\n") + 1].splitlines():
            if part in (message := str(json.loads(line).get("message"))):
                return message
        assert run.process.poll() is None, text
        time.sleep(0.01)


@pytest.mark.parametrize("stage", ["start", "ingest", "infer"])
def test_the_next_run_removes_what_a_killed_one_left(jobs: Path, start: Start, stage: str) -> None:
    shared = _shared_memory()
    killed = _held(start, jobs / "big", stage)
    _kill(killed)
    left = {path.name for path in killed.scratch.iterdir()}
    assert any(name.startswith("embertide-") for name in left)
    assert all(name.startswith("embertide-") for name in left)
    assert start(jobs / "small", "--grid", "2x1").done(WAIT_SECONDS).code == 0
    assert not any(killed.scratch.iterdir())
    assert not _shared_memory() - shared


def _copy_of(job: Path, folder: Path) -> Path:
    """The same job with an output of its own."""
    copy = folder / "job"
    shutil.copytree(job, copy, ignore=shutil.ignore_patterns("embeddings"))
    manifest = copy / "job.yaml"
    manifest.write_text(manifest.read_text().replace(str(job), str(copy)))
    return copy


def test_a_run_that_is_killed_while_it_computes_leaves_no_output(
    jobs: Path, tmp_path: Path, start: Start
) -> None:
    job = _copy_of(jobs / "big", tmp_path)
    _kill(_held(start, job, "csr"))
    assert not (job / "embeddings").exists()


def test_a_run_that_fails_leaves_no_empty_folders(jobs: Path, tmp_path: Path, start: Start) -> None:
    job = _copy_of(jobs / "big", tmp_path)
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        run = _held(start, job, "features")
        # It is there when the run goes on, which is further than it has told.
        run.process.send_signal(signal.SIGTERM)
        run.go_on()
        assert run.done(WAIT_SECONDS).code == 130
        if not (job / "embeddings" / "LATEST").exists():
            break
        assert time.monotonic() < deadline, "each was complete before it could be stopped"
        shutil.rmtree(job / "embeddings")
    assert not (job / "embeddings").exists()


def test_a_folder_in_use_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_folder() as mine:
        (tmp_path / "embertide-run-nobodys").mkdir()
        (tmp_path / "somebody-elses").mkdir()
        remove_unused(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {mine.name, "somebody-elses"}
    assert not mine.exists()


def test_the_second_run_to_an_output_waits(jobs: Path, start: Start) -> None:
    first = _held(start, jobs / "big", "features")
    second = start(jobs / "big")
    said = _await_message(second, "waiting for process")
    assert said == f"waiting for process {first.process.pid}, which writes the same output"
    other = start(jobs / "small").done(WAIT_SECONDS)
    assert other.code == 0
    assert not any("waiting" in str(event.get("message")) for event in other.events)
    _kill(first)
    assert second.done(WAIT_SECONDS).code == 0
    assert not any(second.scratch.iterdir())


def test_ctrl_c_ends_the_waiting_at_once(jobs: Path, start: Start) -> None:
    first = _held(start, jobs / "big", "features")
    second = start(jobs / "big")
    _await_message(second, "waiting for process")
    began = time.monotonic()
    second.process.send_signal(signal.SIGINT)
    assert second.done(WAIT_SECONDS).code == 130
    assert time.monotonic() - began < 5.0
    first.go_on()
    assert first.done(WAIT_SECONDS).code == 0
    assert not any(first.scratch.iterdir())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:///data/out/", "file:///data/out"),
        ("/data/out", "file:///data/in/../out"),
        ("s3://bucket/out/", "s3://bucket/out"),
    ],
)
def test_an_output_is_the_same_however_it_is_written(one: str, other: str) -> None:
    assert lock_path(one, StorageSettings()) == lock_path(other, StorageSettings())


def test_other_outputs_do_not_wait() -> None:
    plain, minio = StorageSettings(), StorageSettings(endpoint_url="https://minio:9000")
    uris = ["file:///data/out", "file:///data/out2", "s3://bucket/out"]
    paths = [lock_path(uri, plain) for uri in uris]
    assert len({*paths, lock_path("s3://bucket/out", minio)}) == 4
