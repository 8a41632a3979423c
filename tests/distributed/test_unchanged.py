"""A run that would compute the current version again confirms it; anything else computes one."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

import embertide
from embertide.engine.planning.base_version import confirm_unchanged
from embertide.engine.planning.confirmed import Confirmed
from embertide.engine.planning.inputs import list_inputs
from embertide.io.storage.opening import open_storage
from embertide.io.versions.pointer import read_pointer
from embertide.spec.manifest import load_manifest
from tests.support.commands import Commands

pytestmark = pytest.mark.distributed


class Published:
    """A small job in a folder, of which a version is published."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.job = folder / "small", folder / "small" / "job.yaml"
        self.commands = Commands(folder)
        size = ("--scale", "6", "--width", "4", "--hidden", "4", "-q")
        assert self.commands.run("synth", str(self.folder), *size).code == 0
        done = self.commands.run("run", str(self.job), "--json")
        assert (done.code, done.events[-1]["confirmed"]) == (0, False), done.err

    def look(self) -> str:
        """What has changed, as a run finds it; "" where it confirms the version."""
        storage, job = open_storage(None), load_manifest(self.job)
        try:
            return confirm_unchanged(storage, job, list_inputs(storage, job))
        except Confirmed:
            return ""

    @property
    def versions(self) -> list[str]:
        return [info.version for info in embertide.list_versions(self.folder / "embeddings")]

    @property
    def checked_at(self) -> str:
        pointer = read_pointer(open_storage(None), f"file://{self.folder}/embeddings")
        assert pointer is not None
        return pointer.checked_at

    def edit(self, **fields: object) -> None:
        """Set fields of the job's spec."""
        manifest = yaml.safe_load(self.job.read_text())
        manifest["spec"] |= fields
        self.job.write_text(yaml.safe_dump(manifest))

    def only(self, pattern: str) -> Path:
        (path,) = self.folder.glob(pattern)
        return path


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Published:
    return Published(tmp_path_factory.mktemp("unchanged"))


@pytest.fixture
def published(tmp_path: Path) -> Published:
    return Published(tmp_path)


@pytest.mark.tier(1)
def test_nothing_is_computed_where_nothing_has_changed(original: Published) -> None:
    (version,) = original.versions
    assert original.checked_at == ""
    done = original.commands.run("run", str(original.job), "--json", "--grid", "2x1")
    assert done.code == 0, done.err
    report = done.events[-1]
    assert (report["version"], report["confirmed"], report["current"]) == (version, True, True)
    assert original.versions == [version]
    assert {event["stage"] for event in done.events[:-1]} <= {"start", "plan"}
    first = original.checked_at
    assert first > json.loads((original.folder / "embeddings/LATEST").read_text())["movedAt"]
    shown = original.commands.run("run", str(original.job), "-q")
    assert shown.out.startswith(f"Unchanged {version}\n"), shown.out
    assert "nothing was computed (--force computes a version)" in " ".join(shown.out.split())
    assert original.checked_at > first


def test_a_program_gets_the_report_of_the_run_that_computed_it(original: Published) -> None:
    report = embertide.run(original.job)
    assert report.confirmed
    assert [report.version] == original.versions
    assert (report.nodes, report.rows) == (64, 64)


def _append_edges(job: Published) -> str:
    path = job.only("edges/*.parquet")
    pq.write_table(pq.read_table(path).slice(1), path)
    return f"file://{path} has changed"


def _add_object(job: Published) -> str:
    path = job.only("edges/*.parquet")
    new = path.with_name("zz.parquet")
    new.write_bytes(path.read_bytes())
    return f"file://{new} is new"


def _change_weights(job: Published) -> str:
    path = job.only("model/*.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return f"the model's file://{path} has changed"


def _write_in_place(job: Published) -> str:
    """As a tool does that keeps times: neither size nor time of modification tells."""
    path = job.only("features/*.parquet")
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\x00")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return f"file://{path} was touched after it was read"


def _sample(job: Published) -> str:
    job.edit(inference={"fanout": [2, 2, 2]})
    return "the job has changed"


def _change_format(job: Published) -> str:
    manifest = yaml.safe_load(job.job.read_text())
    job.edit(output=manifest["spec"]["output"] | {"format": "npy"})
    return "the job has changed"


def _ask_for_all(job: Published) -> str:
    job.edit(refresh={"mode": "full"})
    return "spec.refresh.mode is full, or --force was given"


def _bound_the_age(job: Published) -> str:
    manifest = yaml.safe_load(job.job.read_text())
    job.edit(output=manifest["spec"]["output"] | {"gate": {"maxInputAge": "1s"}})
    time.sleep(1.1)
    return "the inputs are older than spec.output.gate.maxInputAge"


def _lose_a_part(job: Published) -> str:
    part = job.only("embeddings/versions/*/part-*")
    part.unlink()
    return f"file://{part} is missing"


def _lose_the_report(job: Published) -> str:
    job.only("embeddings/versions/*/_report.json").unlink()
    return "has no report"


def _other_release(job: Published) -> str:
    path = job.only("embeddings/versions/*/_manifest.json")
    text = path.read_text()
    changed = text.replace(f'"embertide": "{embertide.__version__}"', '"embertide": "0.0.1"')
    assert changed != text
    path.write_text(changed)
    pointer = job.folder / "embeddings/LATEST"
    digests = [hashlib.sha256(version.encode()).hexdigest() for version in (text, changed)]
    pointer.write_text(pointer.read_text().replace(*digests))
    return "another release computed it"


def _change_the_manifest(job: Published) -> str:
    """By hand, so that it no longer is what the run wrote."""
    path = job.only("embeddings/versions/*/_manifest.json")
    path.write_text(path.read_text().replace('"edges": 1280', '"edges": 1281'))
    return "was changed after it was published"


def _lose_the_pointer(job: Published) -> str:
    (job.folder / "embeddings/LATEST").unlink()
    return "there is no version yet"


@pytest.mark.parametrize(
    "change",
    [
        _append_edges, _add_object, _change_weights, _write_in_place, _sample, _change_format,
        _ask_for_all, _bound_the_age, _lose_a_part, _lose_the_report, _other_release,
        _change_the_manifest,
        _lose_the_pointer,
    ],
)  # fmt: skip
def test_what_counts_as_a_change(published: Published, change: Callable[[Published], str]) -> None:
    time.sleep(0.05)  # The clock of file systems is coarser than the versions' names.
    assert published.look() == ""
    assert change(published) in published.look()


@pytest.mark.parametrize("field", ["workers", "storage", "freshness", "output"])
def test_what_does_not_count(published: Published, field: str) -> None:
    output = yaml.safe_load(published.job.read_text())["spec"]["output"]
    values = {
        "workers": {"count": 2},
        "storage": {"region": "eu-west-1"},
        "freshness": {"maxAge": "26h"},
        "output": output | {"gate": {"maxInputAge": "26h"}, "keepVersions": 9},
    }
    published.edit(**{field: values[field]})
    assert published.look() == ""


def test_a_version_is_computed_when_it_is_asked_for(published: Published) -> None:
    (first,) = published.versions
    done = published.commands.run("run", str(published.job), "--force", "--json")
    assert (done.code, done.events[-1]["confirmed"]) == (0, False), done.err
    assert len(published.versions) == 2
    assert embertide.run(published.job, force=True).version not in (first, *published.versions[:2])
    assert len(published.versions) == 3


def test_the_reason_to_compute_is_shown(published: Published) -> None:
    _append_edges(published)
    done = published.commands.run("run", str(published.job))
    assert done.code == 0
    assert "a version is computed: file://" in done.err
    assert "has changed" in done.err
    assert len(published.versions) == 2


def test_a_limit_that_was_raised_is_looked_at(published: Published) -> None:
    manifest = yaml.safe_load(published.job.read_text())
    manifest["spec"]["input"]["edges"][0]["minEdges"] = 10_000_000
    published.job.write_text(yaml.safe_dump(manifest))
    done = published.commands.run("run", str(published.job), "-q")
    assert done.code == 3
    assert "minEdges is 10,000,000" in done.message


def test_an_older_version_that_is_current_again(published: Published) -> None:
    """After a rollback the current version counts, not the newest."""
    (first,) = published.versions
    _append_edges(published)
    assert published.commands.run("run", str(published.job), "-q").code == 0
    assert published.look() == ""
    assert published.commands.run("rollback", str(published.job), first).code == 0
    assert "has changed" in published.look()


def test_a_version_that_was_held_and_released(published: Published) -> None:
    """The report of its run says that it is held; the run that confirms it does not."""
    output = yaml.safe_load(published.job.read_text())["spec"]["output"]
    published.edit(output=output | {"gate": {"maxInputAge": "1s"}})
    time.sleep(1.1)
    held = published.commands.run("run", str(published.job), "--force", "--json")
    assert held.code == 11, held.err
    assert published.commands.run("release", str(published.job)).code == 0
    published.edit(output=output)
    done = published.commands.run("run", str(published.job), "--json")
    assert done.code == 0, done.err
    report = done.events[-1]
    assert (report["confirmed"], report["held"], report["warnings"]) == (True, [], [])
