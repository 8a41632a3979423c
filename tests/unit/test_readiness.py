"""Whether inputs are ready: each condition on real files, waiting by a clock that the test sets."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from embertide.engine.planning.readiness import describe, missing_inputs, wait_for_inputs
from embertide.errors import InputError, InputsNotReady
from embertide.io.storage.opening import open_storage
from embertide.spec.manifest import EmbeddingJob, load_manifest
from embertide.spec.matching import percent_share
from embertide.spec.readiness import look_again_seconds
from embertide.spec.reports import InputsReport, MissingInput
from tests.support.small_job import NODES, SmallJob

STORAGE = open_storage(None)


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    return SmallJob.make(tmp_path)


def waiting(small: SmallJob, where: str = "edges__0", **ready: Any) -> EmbeddingJob:
    """The job with one input that waits."""
    small.write_manifest(**{f"input__{where}__ready": ready})
    return load_manifest(Path(small.manifest))


def why(small: SmallJob, where: str = "edges__0", **ready: Any) -> str:
    """What is missing; "" for nothing."""
    return describe(missing_inputs(STORAGE, waiting(small, where, **ready)))


def test_a_job_that_waits_for_nothing(small: SmallJob) -> None:
    job = load_manifest(Path(small.manifest))
    small.edges.unlink()
    assert missing_inputs(STORAGE, job) == []
    wait_for_inputs(STORAGE, job, pytest.fail, sleep=pytest.fail)


def test_a_folder_that_is_not_there(small: SmallJob) -> None:
    assert why(small) == ""
    small.edges.unlink()
    assert f"edges[0]: file://{small.folder}/edges/ is a directory without files" in why(small)
    small.edges.parent.rmdir()
    assert f"edges[0]: file://{small.folder}/edges/ does not exist" in why(small)


def test_a_marker_below_and_elsewhere(small: SmallJob) -> None:
    marker = small.edges.parent / "_SUCCESS"
    assert why(small, object="_SUCCESS") == f"edges[0]: file://{marker} is not there"
    marker.touch()
    assert why(small, object="_SUCCESS") == ""
    elsewhere = f"file://{small.folder}/done"
    assert why(small, object=elsewhere) == f"edges[0]: {elsewhere} is not there"
    # A marker alone is no data.
    small.edges.unlink()
    assert "has no objects but hidden ones" in why(small, object="_SUCCESS")


def test_numbers_of_objects_bytes_and_rows(small: SmallJob) -> None:
    size = small.edges.stat().st_size
    assert why(small, minObjects=1, minBytes=size, minRows=NODES) == ""
    assert why(small, minObjects=2) == ("edges[0]: 1 of at least 2 objects are there (minObjects)")
    assert why(small, minBytes=10**6) == (
        f"edges[0]: {size:,} of at least 1,000,000 bytes are there (minBytes)"
    )
    assert why(small, minRows=NODES + 1) == (
        f"edges[0]: {NODES} of at least {NODES + 1} rows are there (minRows)"
    )
    assert why(small, "nodes__0__features", minRows=NODES + 1) == (
        f"nodes[0].features: {NODES} of at least {NODES + 1} rows are there (minRows)"
    )
    small.edges.write_bytes(small.edges.read_bytes()[:-50])
    assert "rows cannot be counted" in why(small, minRows=NODES)


def test_settled(small: SmallJob) -> None:
    assert "changed 0 s ago (settled: 10m)" in why(small, settled="10m")
    # Times of a copy may be those of its original; it has arrived only now.
    os.utime(small.edges, (time.time() - 7200,) * 2)
    assert "changed 0 s ago (settled: 10m)" in why(small, settled="10m")
    time.sleep(1.1)
    assert why(small, settled="1s") == ""


def test_objects_in_subfolders_are_refused_at_once(small: SmallJob) -> None:
    below = small.edges.parent / "old" / "part.parquet"
    below.parent.mkdir()
    below.write_bytes(small.edges.read_bytes())
    with pytest.raises(InputError, match="lies in a subfolder"):
        why(small)


class Clock:
    """A clock that moves while the waiting sleeps; ``at`` does something at a time."""

    def __init__(self, at: float = 0.0, then: Any = None) -> None:
        self.now, self.pauses, self.lines = 0.0, [], []
        self._at, self._then = at, then

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.pauses.append(seconds)
        self.now += seconds
        if self._then is not None and self.now >= self._at:
            self._then()

    def wait(self, job: EmbeddingJob) -> None:
        wait_for_inputs(STORAGE, job, self.lines.append, now=lambda: self.now, sleep=self.sleep)


def test_waiting_until_the_marker_is_there(small: SmallJob) -> None:
    job = waiting(small, object="_SUCCESS", within="2h")
    clock = Clock(600, lambda: (small.edges.parent / "_SUCCESS").touch())
    clock.wait(job)
    assert 600 <= clock.now < 750
    assert len(clock.pauses) < 20
    assert "at most 7200 s more: edges[0]: file://" in clock.lines[0]


def test_waiting_ends_at_its_time(small: SmallJob) -> None:
    job = waiting(small, object="_SUCCESS", within="1h")
    clock = Clock()
    with pytest.raises(InputsNotReady) as caught:
        clock.wait(job)
    assert clock.now == 3600
    assert caught.value.exit_code == 3
    assert "not ready within 3600 s (ready.within): edges[0]: file://" in str(caught.value)
    assert "the current version stays" in str(caught.value)


def test_of_two_inputs_the_less_patient_one_ends_it(small: SmallJob) -> None:
    small.write_manifest(
        input__edges__0__ready={"object": "_SUCCESS", "within": "2h"},
        input__nodes__0__features__ready={"object": "_SUCCESS", "within": "30m"},
    )
    job = load_manifest(Path(small.manifest))
    assert [entry.field for entry in missing_inputs(STORAGE, job)] == [
        "nodes[0].features",
        "edges[0]",
    ]
    clock = Clock()
    with pytest.raises(InputsNotReady, match=r"within 1800 s .*nodes\[0\].features"):
        clock.wait(job)
    # Once the features are there, the edges have their two hours.
    clock = Clock(900, lambda: (small.features.parent / "_SUCCESS").touch())
    with pytest.raises(InputsNotReady, match=r"within 7200 s .*edges\[0\]"):
        clock.wait(job)


def test_pauses() -> None:
    pauses, now = [], 0.0
    while now < 7200:
        pauses.append(look_again_seconds(now))
        now += pauses[-1]
    assert (pauses[0], max(pauses)) == (15, 300)
    assert 25 < len(pauses) < 45


@pytest.mark.parametrize(("text", "share"), [("0%", 0.0), ("10%", 0.1), ("7.5%", 0.075)])
def test_shares(text: str, share: float) -> None:
    assert percent_share(text) == pytest.approx(share)


def test_a_report_fits_a_termination_message() -> None:
    one = MissingInput(field="edges[0]", why="x" * 500, within_seconds=7200)
    report = InputsReport.of([one] * 100)
    text = report.to_text()
    assert len(text.encode()) <= 4096
    found = InputsReport.parse(text)
    assert found is not None
    assert len(found.missing) + found.more == 100
    long = InputsReport.of([one.model_copy(update={"why": "ü" * 9000})])
    assert len(long.to_text().encode()) <= 4096
    assert InputsReport.parse(long.to_text()) is not None
