"""Inputs of several places: lists, patterns, windows of days; what is there, missing, or twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from embertide.engine.planning.inputs import list_inputs
from embertide.engine.planning.readiness import describe, missing_inputs, wait_for_inputs
from embertide.errors import EmbertideError, InputError
from embertide.io.readers.places import expand, list_input, missing_days
from embertide.io.storage.opening import open_storage
from embertide.spec.job_digest import job_digest
from embertide.spec.manifest import EdgeInput, EmbeddingJob, load_manifest
from tests.support.expected import Expected, inputs
from tests.support.manifests import put
from tests.support.small_job import SmallJob

STORAGE = open_storage(None)
WINDOW = {"last": "3d", "of": "dt=%Y-%m-%d", "until": "2026-11-22"}


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def edges(**given: Any) -> EdgeInput:
    return EdgeInput.model_validate({"format": "parquet", **given})


CASES = inputs("places.txt")


@pytest.mark.parametrize("name", CASES)
def test_what_places_have(name: str, tmp_path: Path, expected: Expected) -> None:
    """What a pattern fits, or the objects of an input, in their order; days that are missing."""
    given = yaml.safe_load(CASES[name].replace("<folder>", tmp_path.as_uri()))
    touch(tmp_path, *given.pop("files"))
    try:
        if "expand" in given:
            found = expand(STORAGE, given["expand"])
        else:
            found = [info.uri for info in list_input(STORAGE, edges(**given), "edges")]
            found += missing_days(STORAGE, edges(**given), "edges")
    except EmbertideError as error:
        found = [str(error)]
    text = "\n".join(found).replace("file://", "").replace(str(tmp_path), "<folder>")
    expected.check("places.txt", name, f"{CASES[name]}--\n{text or 'nothing'}", CASES)


# ---- ready


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    """A job whose edges are in two days' folders."""
    small = SmallJob.make(tmp_path)
    data = small.edges.read_bytes()
    small.edges.unlink()
    for day in (21, 22):
        path = small.edges.parent / f"dt=2026-11-{day}" / "part.parquet"
        path.parent.mkdir()
        path.write_bytes(data)
    return small


def waiting(small: SmallJob, **changes: Any) -> EmbeddingJob:
    small.write_manifest(**{f"input__edges__0__{name}": value for name, value in changes.items()})
    return load_manifest(Path(small.manifest))


def why(job: EmbeddingJob) -> str:
    return describe(missing_inputs(STORAGE, job))


@pytest.mark.parametrize("kind", ["uris", "pattern", "window"])
def test_conditions_hold_in_every_place(small: SmallJob, kind: str) -> None:
    folder = f"file://{small.edges.parent}"
    first, second = (f"{folder}/dt=2026-11-{day}/" for day in (21, 22))
    place: dict[str, Any] = {
        "uris": {"uri": None, "uris": [first, second]},
        "pattern": {"uri": f"{folder}/dt=*/"},
        "window": {"window": WINDOW | {"last": "2d"}},
    }[kind]
    (small.edges.parent / "dt=2026-11-21" / "_SUCCESS").touch()
    job = waiting(small, **place, ready={"object": "_SUCCESS"})
    assert why(job) == f"edges[0]: {second}_SUCCESS is not there"
    (small.edges.parent / "dt=2026-11-22" / "_SUCCESS").touch()
    assert why(job) == ""
    enough = waiting(small, **place, ready={"minObjects": 1, "minRows": 12})
    assert why(enough) == ""
    assert "12 of at least 13 rows" in why(waiting(small, **place, ready={"minRows": 13}))
    assert "1 of at least 2 objects" in why(waiting(small, **place, ready={"minObjects": 2}))
    assert sum(split.stop - split.start for split in list_inputs(STORAGE, job).edges) == 24


class Clock:
    """A clock that moves while the waiting sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, job: EmbeddingJob) -> None:
        wait_for_inputs(STORAGE, job, lambda _text: None, now=lambda: self.now, sleep=self.sleep)


def test_days_that_may_be_missing_are_waited_for_and_let_go(small: SmallJob) -> None:
    ready = {"object": "_SUCCESS", "within": "1h"}
    for day in (21, 22):
        (small.edges.parent / f"dt=2026-11-{day}" / "_SUCCESS").touch()
    job = waiting(small, window=WINDOW | {"missingDays": "allow"}, ready=ready)
    assert "dt=2026-11-20/_SUCCESS is not there" in why(job)
    clock = Clock()
    clock.wait(job)
    assert clock.now == 3600
    assert list_inputs(STORAGE, job).missing_days == {
        f"file://{small.edges.parent}/ (3d until 2026-11-22)": ["2026-11-20"]
    }
    # A day that has objects must be ready all the same.
    (small.edges.parent / "dt=2026-11-21" / "_SUCCESS").unlink()
    with pytest.raises(InputError, match=r"within 3600 s .*dt=2026-11-21/_SUCCESS is not there"):
        Clock().wait(job)


def test_a_pattern_that_fits_nothing_is_waited_for(small: SmallJob) -> None:
    job = waiting(small, uri=f"file://{small.edges.parent}/dt=2027-*/", ready={"within": "1h"})
    assert "dt=2027-*/ fits no object or folder that is there" in why(job)
    with pytest.raises(InputError, match="not ready within 3600 s"):
        Clock().wait(job)


# ---- the manifest


EDGE = "spec.input.edges.0"


def test_an_output_beside_what_a_pattern_stands_for(example: dict[str, Any]) -> None:
    apart = put(put(example, f"{EDGE}.uri", "s3://shop/e*/"), "spec.output.uri", "s3://shop/out")
    assert load_manifest(yaml.safe_dump(apart)).spec.output.uri == "s3://shop/out"


def test_a_digest_has_the_places_and_days(example: dict[str, Any]) -> None:
    def digest(**changes: Any) -> str:
        data = put(example, "metadata.name", "products")
        del data["spec"]["input"]["edges"][0]["uri"]
        for name, value in changes.items():
            data = put(data, f"{EDGE}.{name}", value)
        return job_digest(load_manifest(yaml.safe_dump(data)))

    base = digest(uris=["s3://a/x/", "s3://b/y"])
    assert base == digest(uris=["s3://a/x", "s3://b/y/"])
    assert base != digest(uris=["s3://a/x", "s3://b/z"])
    week = digest(uri="s3://a/x", window=WINDOW)
    assert week != digest(uri="s3://a/x", window=WINDOW | {"until": "2026-11-23"})
    assert week != digest(uri="s3://a/x")
    assert digest(uri="s3://a/x") != digest(uri="s3://a/x", unknownNodes={"action": "drop"})
