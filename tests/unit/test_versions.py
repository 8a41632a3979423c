"""Versions on files: publishing, racing, going back, retention, and what is left after a crash."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from embertide.errors import AccessDenied, EmbertideError, StorageError
from embertide.io.storage.local import LocalStore
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import latest, list_versions
from embertide.io.versions.formats import FORMATS
from embertide.io.versions.probe import check_output
from embertide.io.versions.publish import discard, finish, publish, rollback
from embertide.io.versions.reading import iter_embeddings
from embertide.io.versions.releasing import newest_held, release, remove_held
from embertide.io.versions.retention import remove_old
from embertide.spec.version_names import begun, is_version, new_version
from tests.support.expected import Expected, inputs
from tests.support.versions import (
    CURRENT,
    LATER,
    NEXT,
    OLD,
    check_crashes,
    check_races,
    hooked,
    is_intact,
    manifest_of,
    names,
    path_of,
    publish_one,
    write_parts,
)

CASES = inputs("versions.txt")
MASKED = {r"\d+ (byte|were written)": r"<n> \1", r"[0-9a-f]{64}": "<digest>"}


class Script:
    """Acts on the versions of an output by the lines of a case.

    ``before OPERATION END: line`` acts before the next such operation on a URI that ends so, within
    the line after it. ``new NAME [hours]`` names a version that begins now, or so long ago.
    """

    def __init__(self, storage: Storage, output: str) -> None:
        self.storage, self.output = storage, output
        self.names = {"OLD": OLD, "CURRENT": CURRENT, "NEXT": NEXT, "LATER": LATER}
        self.hooks: list[tuple[str, str, str]] = []

    def act(self, line: str) -> object:
        """What a line gives, or its error."""
        word, *given = shlex.split(line.format_map(self.names))
        options = dict(part.split("=", 1) for part in given if "=" in part)
        args = [self.names.get(part, part) for part in given if "=" not in part]
        try:
            return getattr(self, word)(*args, **options)
        except EmbertideError as error:
            return f"{type(error).__name__}: {error}"
        except ConnectionError:
            return "died"

    def store(self) -> Any:
        """The storage, with hooks that act once."""
        return hooked(self.storage, self.before_operation) if self.hooks else self.storage

    def before_operation(self, operation: str, uri: str) -> None:
        for hook in [h for h in self.hooks if h[0] == operation and uri.endswith(h[1])]:
            self.hooks.remove(hook)
            if hook[2] == "die":
                raise ConnectionError
            if hook[2] == "refuse":
                self.hooks.append(hook)
                raise AccessDenied(f"{uri} may not be removed")
            self.act(hook[2])

    def publish(self, version: str, **options: str) -> str:
        """A whole run's output; ``rows``, or a part that is lost or cut after it was written."""
        keep, held = int(options.get("keep", 100)), [v for k, v in options.items() if k == "held"]
        if not options.keys() & {"rows", "lose", "cut"}:
            info = publish_one(self.store(), self.output, version, keep, held=held)
            return info.not_removed or ("current" if info.current else "not current")
        manifest = manifest_of(write_parts(self.storage, self.output, version))
        for name, damage in {"lose": self.unlink, "cut": self.cut}.items():
            if name in options:
                damage(f"versions/{version}/{options[name]}")
        rows = int(options.get("rows", manifest["rows"]))
        return str(publish(self.storage, self.output, version, manifest | {"rows": rows}, keep))

    def new(self, name: str, hours: str = "0") -> None:
        self.names[name] = new_version(datetime.now(UTC) - timedelta(hours=float(hours)))

    def write(self, version: str) -> None:
        """Parts alone."""
        write_parts(self.storage, self.output, version)

    def rollback(self, version: str) -> bool:
        return rollback(self.store(), self.output, version).current

    def release(self, version: str) -> bool:
        return release(self.store(), self.output, version).current

    def finish(self, version: str) -> bool:
        return finish(self.storage, self.output, version, keep=7).current

    def remove_held(self, version: str) -> object:
        return remove_held(self.storage, self.output, version)

    def newest_held(self) -> str:
        return newest_held(self.storage, self.output)

    def discard(self, version: str) -> None:
        """What a failed run wrote."""
        discard(self.storage, self.output, version)

    def remove(self, keep: str) -> None:
        remove_old(self.store(), self.output, keep=int(keep))

    def read(self, version: str) -> bool:
        return is_intact(self.storage, self.output, version)

    def latest(self) -> str:
        return latest(self.storage, self.output).version

    def put(self, name: str, text: str) -> None:
        self.storage.write(f"{self.output}/{name}", text.encode())

    def unlink(self, name: str) -> None:
        path_of(self.output, name).unlink()

    def cut(self, name: str) -> None:
        path = path_of(self.output, name)
        path.write_bytes(path.read_bytes()[:-1])

    def replace(self, name: str, old: str, new: str) -> None:
        path = path_of(self.output, name)
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def state(self) -> Iterator[str]:
        """Each complete version, and the files of each folder."""
        try:
            for info in list_versions(self.storage, self.output):
                whole = is_intact(self.storage, self.output, info.version)
                kind = "current" if info.current else "held" if info.held else "earlier"
                yield f"{info.version}: {kind}{'' if whole else ', damaged'}"
        except EmbertideError as error:
            yield f"{type(error).__name__}: {error}"
        folder = path_of(self.output, "")
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and "part-" not in p.name):
            yield str(path.relative_to(folder))

    def run(self, lines: list[str]) -> str:
        told = []
        for line in lines:
            if line.startswith("before "):
                when, _, what = line.partition(": ")
                _, operation, end, *_ = [*when.split(), ""]
                self.hooks.append((operation, end, what))
                continue
            answer = self.act(line)
            told.append(f"{line}{'' if answer is None else f': {answer}'}")
            assert not [hook for hook in self.hooks if hook[2] != "refuse"], "was not called"
        text = "\n".join([*told, "", *self.state()]).replace(self.output, "<output>")
        text = text.replace(self.output.removeprefix("file://"), "<output>")
        for name, version in self.names.items():
            text = text.replace(version, name)
        for pattern, masked in MASKED.items():
            text = re.sub(pattern, masked, text)
        return text


@pytest.mark.parametrize("name", CASES)
def test_versions_as_their_case_says(
    name: str, storage: Storage, output: str, expected: Expected
) -> None:
    found = Script(storage, output).run(CASES[name].splitlines())
    expected.check("versions.txt", name, f"{CASES[name]}--\n{found}", CASES)


def test_names_sort_as_runs_begin_even_within_a_second() -> None:
    start = datetime(2026, 11, 21, 4, 19, 22, 999_000, UTC)
    moments = [start + timedelta(microseconds=20 * i) for i in range(200)]
    versions = [new_version(moment) for moment in moments]
    assert versions == sorted(versions)
    assert versions[0].startswith("20261121T041922Z-ff")
    assert versions[-1].startswith("20261121T041923Z-00")
    for version, moment in zip(versions, moments, strict=True):
        assert is_version(version)
        assert timedelta(0) <= moment - begun(version) < timedelta(microseconds=17)


def test_names_are_in_utc() -> None:
    local = datetime.fromisoformat("2026-11-21T06:19:22+02:00")
    assert new_version(local).startswith("20261121T041922Z-0000")


def test_a_published_version_is_described_listed_and_read(storage: Storage, output: str) -> None:
    info = publish_one(storage, output, OLD)
    assert (info.version, info.rows, info.dim, info.current) == (OLD, 7, 3, True)
    assert info.uri == f"{output}/versions/{OLD}"
    assert datetime.fromisoformat(info.created) <= datetime.now(UTC)
    parts = path_of(output, f"versions/{OLD}").glob("part-*")
    assert info.size == sum(path.stat().st_size for path in parts)
    assert latest(storage, output) == info
    assert list_versions(storage, output) == [info]
    assert is_intact(storage, output, OLD)


def test_manifest_and_pointer_as_consumers_see_them(storage: Storage, output: str) -> None:
    digests = write_parts(storage, output, OLD)
    info = publish(storage, output, OLD, {**manifest_of(digests), "seed": 5}, keep=1)
    manifest = json.loads(path_of(output, f"versions/{OLD}/_manifest.json").read_text())
    assert (manifest["version"], manifest["seed"], manifest["rows"]) == (OLD, 5, 7)
    assert manifest["parts"][0]["sha256"] == digests[0].sha256
    pointer = json.loads(path_of(output, "LATEST").read_text())
    assert (pointer["version"], pointer["movedBy"]) == (OLD, "publish")
    assert pointer["manifestDigest"] == info.manifest_digest


def test_the_type_of_rows_is_float32_where_a_manifest_does_not_say(
    storage: Storage, output: str
) -> None:
    earlier = publish_one(storage, output, OLD)
    manifest = manifest_of(write_parts(storage, output, CURRENT)) | {"rowType": "bfloat16"}
    later = publish(storage, output, CURRENT, manifest, keep=2)
    assert (earlier.row_type, later.row_type) == ("float32", "bfloat16")
    assert [info.row_type for info in list_versions(storage, output)] == ["float32", "bfloat16"]


@pytest.mark.parametrize("format", FORMATS)
def test_the_current_version_is_the_default(storage: Storage, output: str, format: str) -> None:
    publish_one(storage, output, OLD, format=format)
    publish_one(storage, output, CURRENT, format=format)
    assert is_intact(storage, output, CURRENT)
    default = [values.tolist() for _, values in iter_embeddings(storage, output)]
    chosen = [values.tolist() for _, values in iter_embeddings(storage, output, CURRENT)]
    assert default == chosen


def test_processes_race_for_the_pointer(output: str) -> None:
    check_races(None, output, processes=6)


@pytest.mark.tier(2)
def test_a_process_that_dies_anywhere_leaves_a_whole_version(output: str) -> None:
    check_crashes(None, output)


@pytest.mark.parametrize(
    ("write", "condition"),
    [
        (lambda _etag, _answer: False, "refuses a write whose If-None-Match: *"),
        (lambda etag, answer: answer or etag is None, "ignores If-None-Match: *"),
        (lambda etag, answer: answer or etag is not None, "ignores If-Match"),
        (lambda etag, answer: answer and etag is None, "refuses a write whose If-Match"),
        (lambda _etag, answer: answer, None),
    ],
)
def test_a_store_that_keeps_no_conditions_is_found_before_the_work(
    write: Callable[[str | None, bool], bool], condition: str | None, tmp_path: Path
) -> None:
    class Store(LocalStore):
        def write_if(self, uri: str, data: bytes, etag: str | None) -> bool:
            return write(etag, super().write_if(uri, data, etag))

    if condition is None:
        check_output(Store(), f"file://{tmp_path}", new_version())
    else:
        with pytest.raises(StorageError, match=re.escape(condition)):
            check_output(Store(), f"file://{tmp_path}", new_version())
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


WHY = ("rows removed: 50.0%; maxRemovedRows is 10%",)


def test_a_run_that_dies_while_it_holds_leaves_no_current_version(
    storage: Storage, output: str
) -> None:
    """Whatever operation is the last one: the version is incomplete, or held."""
    publish_one(storage, output, OLD)
    count = 0

    def counting(_operation: str, _uri: str) -> None:
        nonlocal count
        count += 1

    publish_one(hooked(storage, counting), output, CURRENT, held=WHY)
    operations = count
    for last in range(operations):
        place = f"{output}/{last}"
        publish_one(storage, place, OLD)
        left = last

        def die(_operation: str, _uri: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise ConnectionError

        with pytest.raises(ConnectionError):
            publish_one(hooked(storage, die), place, CURRENT, held=WHY)
        assert latest(storage, place).version == OLD
        assert [info.held for info in list_versions(storage, place)][1:] in ([], [WHY])


def test_versions_beyond_keep_are_removed_oldest_first(storage: Storage, output: str) -> None:
    for version in (OLD, CURRENT, NEXT, LATER):
        publish_one(storage, output, version, keep=2)
    assert names(storage, output) == [NEXT, LATER]
    assert not path_of(output, f"versions/{OLD}").exists()
    removed: list[str] = []
    publish_one(
        hooked(storage, lambda name, uri: removed.append(uri) if name == "delete" else None),
        output, new_version(), keep=1,
    )  # fmt: skip
    folders = [uri.split("/")[-2] for uri in removed]
    assert folders == sorted(folders)
    assert set(folders) == {NEXT, LATER}
