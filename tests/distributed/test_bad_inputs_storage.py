"""Stores that refuse, are full or gone, and commands that look for what is not there."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Commands, Published, Running
from tests.support.small_job import SmallJob

pytestmark = pytest.mark.distributed

INPUT, STORAGE, OUTPUT = 3, 5, 6


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> SmallJob:
    job = SmallJob.make(tmp_path_factory.mktemp("good"))
    done = commands.run("run", job.manifest, "--grid", "1x1", "--quiet")
    assert (done.code, done.err) == (0, "")
    return job


@pytest.fixture
def job(good: SmallJob, tmp_path: Path) -> SmallJob:
    return good.copy(tmp_path / "job")


@pytest.mark.parametrize(
    ("closed", "says"),
    [
        ("edges/part.parquet", "cannot be read: permission denied"),
        ("features", "cannot be read: permission denied"),
        ("embeddings/versions", "cannot be written: Permission denied"),
    ],
)
def test_no_permission(closed: str, says: str, job: SmallJob, tmp_path: Path) -> None:
    published = Published(job.output)
    path = job.folder / closed
    mode = path.stat().st_mode
    path.chmod(0o500 if "written" in says else 0)
    try:
        run = Running(tmp_path, "run", job.manifest, "--grid", "1x1", powerless=True)
        done = run.done(60)
    finally:
        path.chmod(mode)
    assert done.code == STORAGE
    assert str(path) in done.message
    assert says in done.message
    assert "permission" in done.message
    published.check_untouched()


def test_no_room_for_temporary_files(commands: Commands, job: SmallJob) -> None:
    published = Published(job.output)
    done = commands.run("run", job.manifest, "--grid", "1x1", file_bytes=900)
    assert done.code == OUTPUT
    assert "cannot be written: File too large" in done.message
    assert "set TMPDIR" in done.message
    published.check_untouched()


@pytest.fixture
def tiny_disk(job: SmallJob) -> Iterator[Path]:
    """The output on a file system with room for the version it has and little more."""
    libc = ctypes.CDLL(None, use_errno=True)
    kept = job.output.rename(job.folder / "kept")
    job.output.mkdir()
    if libc.mount(b"tmpfs", bytes(job.output), b"tmpfs", 0, b"size=1m,mode=755"):
        pytest.skip(f"cannot mount a small disk: {os.strerror(ctypes.get_errno())}")
    try:
        shutil.copytree(kept, job.output, dirs_exist_ok=True)
        yield job.output
    finally:
        libc.umount2(bytes(job.output), 2)


def test_a_temporary_folder_too_deep_for_sockets(
    commands: Commands, job: SmallJob, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    done = commands.run("run", job.manifest, "--grid", "1x1", env={"TMPDIR": str(deep)})
    assert done.code == OUTPUT
    assert str(deep) in done.message
    assert "set TMPDIR to a shorter path" in done.message


def test_a_full_disk(commands: Commands, job: SmallJob, tiny_disk: Path) -> None:
    filler = tiny_disk / "filler"
    free = os.statvfs(tiny_disk)
    filler.write_bytes(b"x" * free.f_bavail * free.f_bsize)
    published = Published(tiny_disk)
    done = commands.run("run", job.manifest, "--grid", "1x1")
    assert done.code == OUTPUT
    assert str(tiny_disk) in done.message
    assert "No space left" in done.message
    published.check_untouched()


def test_an_unknown_version_lists_those_there_are(commands: Commands, job: SmallJob) -> None:
    published = Published(job.output)
    for argv in (
        ("rollback", job.manifest, "20200101T000000Z-abcdef"),
        ("neighbors", job.manifest, "3", "--version", "20200101T000000Z-abcdef"),
    ):
        done = commands.run(*argv)
        assert done.code == STORAGE
        assert "no complete version 20200101T000000Z-abcdef" in done.message
        assert published.version in done.message
    published.check_untouched()


def test_an_unknown_id_comes_with_a_hint(commands: Commands, job: SmallJob) -> None:
    done = commands.run("neighbors", job.manifest, "99")
    assert done.code == INPUT
    assert "no id '99'" in done.message
    assert "ids from 0 to 11" in done.message


def test_commands_on_a_published_output(commands: Commands, job: SmallJob) -> None:
    version = Published(job.output).version
    listed = commands.run("versions", job.manifest)
    assert (listed.code, listed.err) == (0, "")
    assert version in listed.out
    back = commands.run("rollback", job.manifest, version)
    assert (back.code, back.err) == (0, "")
    near = commands.run("neighbors", job.manifest, "3", "-k", "2", "--features", "--json")
    assert near.code == 0
    assert {len(found["3"]) for found in near.events[0].values()} == {2}
    plan = commands.run("plan", job.manifest, "--grid", "2x2", "--json")
    assert plan.events[0]["nodes"] == 12
    again = commands.run("synth", str(job.folder), "--scale", "3")
    assert again.code != 0
    assert str(job.folder) in again.message


def _wrong_secret(_s3: Any) -> dict[str, str]:
    return {"AWS_SECRET_ACCESS_KEY": "wrong"}


def _stopped(s3: Any) -> dict[str, str]:
    s3.stop()
    return {}


@pytest.mark.s3
@pytest.mark.parametrize(
    ("spoil", "changes", "says"),
    [
        (lambda _s3: {}, {}, "no such object"),
        (lambda _s3: {}, {"input__edges__0__uri": "s3://no-such-bucket-here/x/"}, "bucket"),
        (_wrong_secret, {}, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (_stopped, {}, "127.0.0.1"),
    ],
)
def test_s3_that_refuses(
    spoil: Callable[[Any], dict[str, str]],
    changes: dict[str, Any],
    says: str,
    s3: Any,
    commands: Commands,
    job: SmallJob,
) -> None:
    published = Published(job.output)
    settings = {"endpointUrl": s3.endpoint, "maxAttempts": 2, "connectTimeoutSeconds": 2.0}
    job.write_manifest(
        **{"input__edges__0__uri": s3.uri("nothing/here/"), "storage": settings} | changes
    )
    done = commands.run("run", job.manifest, env=s3.environment | spoil(s3))
    assert done.code == STORAGE
    assert "s3://" in done.message
    assert says in done.message
    published.check_untouched()
