"""Publishing for tests, and processes that die at a chosen storage operation or race.

Run as a program (see ``main``) it forks such processes from one that has no threads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import VersionInfo, latest, list_versions
from embertide.io.versions.parts import PartDigest, PartWriter
from embertide.io.versions.pointer import Follows
from embertide.io.versions.publish import publish
from embertide.io.versions.reading import iter_embeddings
from embertide.spec.manifest import StorageSettings
from embertide.spec.version_names import new_version, version_uri
from tests.support.paths import ROOT
from tests.support.patience import WAIT_SECONDS

WIDTH = 3
ROWS = (5, 2)
# Sorted by age; the last six digits are part of the time.
OLD, CURRENT, NEXT, LATER = (f"20261121T04192{i}Z-8000ff" for i in range(4))
KILLED = 9


def values_of(version: str) -> npt.NDArray[np.float32]:
    """``[7, WIDTH]``, different for every version."""
    seed = [int(version[9:15]), int(version[-6:], 16)]
    return np.random.default_rng(seed).normal(size=(sum(ROWS), WIDTH)).astype(np.float32)


def write_parts(
    storage: Storage, uri: str, version: str, format: Any = "parquet"
) -> list[PartDigest]:
    """Write and verify one part for each of ``ROWS``."""
    digests, start, values = [], 0, values_of(version)
    for rank, rows in enumerate(ROWS):
        base = f"{version_uri(uri, version)}/part-{rank:05d}"
        writer = PartWriter(
            storage, base, format=format, dtype="float32", ids_kind="int64", width=WIDTH, rows=rows
        )
        with writer:
            ids = np.arange(start, start + rows)
            writer.write(ids, values[start : start + rows])
        writer.verify()
        digests.append(writer.digest)
        start += rows
    return digests


def manifest_of(digests: list[PartDigest]) -> dict[str, Any]:
    """What a run hands to publish."""
    rows = sum(digest.rows for digest in digests)
    return {"rows": rows, "dim": WIDTH, "parts": [asdict(digest) for digest in digests]}


def publish_one(
    storage: Storage,
    uri: str,
    version: str,
    keep: int = 100,
    format: Any = "parquet",
    follows: Follows | None = None,
    held: Sequence[str] = (),
) -> VersionInfo:
    """A whole run's output; one that does not note what it follows is of an earlier release."""
    manifest = manifest_of(write_parts(storage, uri, version, format))
    more = {} if follows is None else {"follows": asdict(follows)}
    return publish(storage, uri, version, manifest | more, keep, held)


def is_intact(storage: Storage, uri: str, version: str) -> bool:
    """Whether all rows of a version are there and as they were written."""
    batches = list(iter_embeddings(storage, uri, version))
    ids = np.concatenate([ids for ids, _ in batches])
    values = np.concatenate([values for _, values in batches])
    right = values_of(version)
    return np.array_equal(ids, np.arange(len(right))) and np.array_equal(values, right)


def names(storage: Storage, uri: str) -> list[str]:
    """The complete versions of an output, the oldest first."""
    return [info.version for info in list_versions(storage, uri)]


def path_of(uri: str, name: str) -> Path:
    """A file of an output of this machine."""
    return Path(uri.removeprefix("file://")) / name


class Hooked:
    """A storage that calls ``before(operation, uri)`` first, at each operation."""

    def __init__(self, storage: Storage, before: Callable[[str, str], None]) -> None:
        self._storage, self._before = storage, before

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._storage, name)

        def call(uri: Any, *args: Any, **options: Any) -> Any:
            uris = [uri] if isinstance(uri, str) else list(uri)
            self._before(name, uris[0] if uris else "")
            return method(uri if isinstance(uri, str) else uris, *args, **options)

        return call

    def delete(self, uris: Any) -> None:
        """One by one, so that something can happen between two of them."""
        for uri in uris:
            self._before("delete", uri)
            self._storage.delete([uri])

    @contextmanager
    def create(self, uri: str) -> Iterator[Any]:
        """Also calls before each write and before the object becomes visible."""
        self._before("create", uri)
        with self._storage.create(uri) as stream:
            yield _HookedStream(stream, lambda: self._before("stream", uri))
            self._before("complete", uri)


def hooked(storage: Storage, before: Callable[[str, str], None]) -> Any:
    """As :class:`Hooked`, wherever a storage is asked for."""
    return Hooked(storage, before)


class _HookedStream:
    def __init__(self, stream: Any, before: Callable[[], None]) -> None:
        self._stream, self._before = stream, before

    def write(self, data: Any) -> int:
        self._before()
        return int(self._stream.write(data))


def crash_at(settings: StorageSettings | None, uri: str, operation: int, parts: bool) -> None:
    """Publish OLD and CURRENT, then NEXT with keep=1, dying at the n-th operation of that.

    Without ``parts`` those of writing the parts do not count.
    """
    storage = open_storage(settings)
    publish_one(storage, uri, OLD)
    publish_one(storage, uri, CURRENT)
    left = operation

    def die(_name: str, _uri: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os._exit(KILLED)

    deadly: Any = Hooked(storage, die)
    digests = write_parts(deadly if parts else storage, uri, NEXT)
    publish(deadly, uri, NEXT, manifest_of(digests), keep=1)


def crash_everywhere(settings: StorageSettings | None, uri: str, parts: int, every: int) -> None:
    """One output for each operation a process dies at, until it outlives them all."""
    _import_all(settings, uri)
    operation, status = 1 - every, KILLED
    while status == KILLED:
        operation += every
        status = _in_child(
            partial(crash_at, settings, f"{uri}/{operation}", operation, bool(parts))
        )()
    assert status == 0, f"operation {operation} ended with status {status}"
    print(json.dumps(operation))


def races(settings: StorageSettings | None, uri: str, processes: int, rounds: int) -> None:
    """As often as asked, with an output each: processes that publish a version at once."""
    _import_all(settings, uri)
    for number in range(rounds):
        _race(settings, f"{uri}/{number}", processes)
    print(json.dumps(processes))


def _race(settings: StorageSettings | None, uri: str, processes: int) -> None:
    start, go = os.pipe()

    def run() -> None:
        os.close(go)
        storage = open_storage(settings)
        version = new_version()
        digests = write_parts(storage, uri, version)
        os.read(start, 1)
        publish(storage, uri, version, manifest_of(digests), keep=100)

    waits = [_in_child(run) for _ in range(processes)]
    # All read the end of the pipe at once.
    os.close(go)
    os.close(start)
    assert [wait() for wait in waits] == [0] * processes


def _import_all(settings: StorageSettings | None, uri: str) -> None:
    """What publishing imports, before the forks and not in each."""
    with suppress(ImportError):
        import pandas  # noqa: F401 - as pyarrow does
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401

    open_storage(settings).stat(uri)


def _in_child(work: Callable[[], None]) -> Callable[[], int]:
    """Start work in a fork; the result waits for its exit status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def call(function: str, settings: StorageSettings | None, uri: str, *args: int) -> Any:
    """Run a function of this file in a process of its own; returns what it prints."""
    given = "null" if settings is None else settings.model_dump_json()
    module = "tests.support.versions"
    command = [sys.executable, "-m", module, function, given, uri, *map(str, args)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def check_crashes(
    settings: StorageSettings | None, uri: str, parts: bool = True, every: int = 1
) -> None:
    """Die at storage operations of a run's end; readers must have a whole version always.

    And the next run must publish as if nothing had been.
    """
    storage = open_storage(settings)
    operations = call("crash_everywhere", settings, uri, int(parts), every)
    seen = []
    for operation in range(1, operations + 1, every):
        output = f"{uri}/{operation}"
        current = latest(storage, output).version
        there = [info.version for info in list_versions(storage, output)]
        assert all(is_intact(storage, output, version) for version in there), operation
        # Nothing is removed before the new version is visible.
        assert current == NEXT or there[:2] == [OLD, CURRENT]
        seen.append(current)
        assert publish_one(storage, output, LATER, keep=1).current
        assert [info.version for info in list_versions(storage, output)] == [LATER]
    # All operations up to the pointer's move come before all others.
    assert seen == sorted(seen)
    assert set(seen) == {CURRENT, NEXT}


def check_races(
    settings: StorageSettings | None, uri: str, processes: int, rounds: int = 5
) -> None:
    """However processes race, all their versions are whole and the newest is current."""
    call("races", settings, uri, processes, rounds)
    storage = open_storage(settings)
    for number in range(rounds):
        output = f"{uri}/{number}"
        found = list_versions(storage, output)
        assert len(found) == processes
        assert all(is_intact(storage, output, info.version) for info in found)
        assert [info.current for info in found] == [False] * (processes - 1) + [True]


def main() -> None:
    """``python -m tests.support.versions FUNCTION SETTINGS_JSON URI [NUMBER...]``."""
    name, given, uri, *numbers = sys.argv[1:]
    settings = StorageSettings.model_validate_json(given) if given != "null" else None
    {"crash_everywhere": crash_everywhere, "races": races}[name](settings, uri, *map(int, numbers))


if __name__ == "__main__":
    main()
