"""The folder of tensors that do not fit in memory, looked at before any worker starts."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

from embertide.errors import EmbertideError, StorageError
from embertide.facts.telemetry.estimate import Estimate
from embertide.facts.telemetry.format import human_bytes
from embertide.io.storage.local_errors import to_path
from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers.places import layers_uri
from embertide.io.versions.layers.sweeping import give_back
from embertide.spec import naming
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.schemes import is_local

_IN_MEMORY = ("tmpfs", "ramfs")


def scratch_folder(job: EmbeddingJob) -> Path:
    """The job's, else the system's for temporary files."""
    return Path(job.spec.workers.scratch or tempfile.gettempdir())


def make_folder(job: EmbeddingJob) -> Path:
    """The folder; in a pod it is made where a volume that is mounted above does not have it yet."""
    folder = scratch_folder(job)
    if naming.ENV_IN_POD in os.environ:
        # Where it can't be made it is refused, or no file can be made there.
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
    return folder


def allow_files() -> None:
    """Let this process have as many files open as the system lets it.

    A graph on disk has three descriptors for each of its parts, hundreds in all. On many systems
    a process may have 1024 unless it asks for more.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def check_scratch(job: EmbeddingJob, plan: Estimate, workers: int) -> None:
    """Refuse a folder that is none, that is in memory, or that has too little room.

    Rows that are kept on the same disk make room where there is too little.

    Args:
        workers: how many share the folder.

    Raises:
        StorageError: names the folder, and what to do.
    """
    if plan.spill is None:
        return
    folder, needed = make_folder(job), plan.spill.disk_bytes * workers
    problem = _problem(folder, needed)
    if problem and _make_room(job, folder, needed):
        problem = _problem(folder, needed)
    if problem:
        raise StorageError(
            f"scratch folder {folder} {problem}; name another folder with --scratch"
            " (spec.workers.scratch), or give workers more memory"
        )


def _make_room(job: EmbeddingJob, folder: Path, needed: int) -> bool:
    """Give back what is kept below the output, if that is on the disk of the folder, which has too
    little room; whether anything was."""
    output = job.spec.output.uri
    with suppress(OSError, EmbertideError):
        if is_local(output) and shutil.disk_usage(folder).free < needed:
            layers = to_path(layers_uri(output))
            if layers.exists() and layers.stat().st_dev == folder.stat().st_dev:
                return give_back(open_storage(job.spec.storage), output, "")
    return False


def _problem(folder: Path, needed: int) -> str:
    try:
        if not folder.is_dir():
            return "is not a folder of this machine"
    except OSError as error:
        # One above it may not be entered, or its name is too long.
        return f"cannot be looked at ({error.strerror})"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "cannot be written to"
    if (kind := _file_system(folder)) in _IN_MEMORY:
        return f"is in memory ({kind}), which is what tensors do not fit in"
    free = shutil.disk_usage(folder).free
    if free < needed:
        return f"has {human_bytes(free)} free, but tensors on disk need {human_bytes(needed)}"
    return ""


def _file_system(folder: Path) -> str:
    """The kind of the file system that a folder is on; "" where the system does not say."""
    real = folder.resolve()
    above = {
        Path(part.mountpoint): part.fstype
        for part in psutil.disk_partitions(all=True)
        if real.is_relative_to(part.mountpoint)
    }
    return above[max(above, key=lambda path: len(path.parts))] if above else ""
