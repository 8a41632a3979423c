"""Back-fills: which times a range has, what a Job is asked for, in which order jobs are created."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from embertide.errors import JobFailed
from embertide.spec import naming
from embertide.submit import backfill
from embertide.submit.backfill import Backfill, firings_of, range_of
from embertide.submit.cluster import Cluster, NameTaken
from embertide.submit.create import create
from embertide.submit.firing import AT, Firing, asked_time
from embertide.submit.policy import Policy
from embertide.submit.template import job_of
from tests.support.manifests import EXAMPLE

BERLIN = ZoneInfo("Europe/Berlin")
Cli = Callable[..., tuple[int, str, str]]


def at(text: str, zone: ZoneInfo = BERLIN) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone)


def times(first: str, last: str, every: str = "1d") -> list[str]:
    found = range_of(at(first), at(last), last, every)
    return [f"{time:%Y-%m-%dT%H:%M%z}" for time in found]


def test_days_keep_the_hour_when_clocks_change() -> None:
    assert times("2026-10-24T03:00", "2026-10-26") == [
        "2026-10-24T03:00+0200",
        "2026-10-25T03:00+0100",
        "2026-10-26T03:00+0100",
    ]


def test_a_date_at_the_end_is_its_whole_day() -> None:
    assert len(times("2026-11-01", "2026-11-05")) == 5
    assert len(times("2026-11-01T00:00", "2026-11-01", "6h")) == 4
    assert len(times("2026-11-01T03:00", "2026-11-05T02:59")) == 4
    assert times("2026-01-31", "2026-03-31", "1mo")[1][:10] == "2026-02-28"


@pytest.mark.parametrize(
    ("first", "last", "every", "says"),
    [
        ("2026-11-05", "2026-11-01", "1d", "--to is '2026-11-01', which is before --from"),
        ("2026-11-01", "2026-11-05", "0d", "--every is '0d'; must be a number and h, d, w or mo"),
        ("2020-01-01", "2026-11-05", "1h", "give more than 1000 times"),
    ],
)
def test_no_range(first: str, last: str, every: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        times(first, last, every)


def kubernetes_job(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "products-20", "annotations": annotations}}


def test_the_time_that_a_job_was_asked_for() -> None:
    assert asked_time(kubernetes_job(), BERLIN) is None
    found = asked_time(kubernetes_job(**{AT: "2026-11-20T03:00"}), BERLIN)
    assert found == at("2026-11-20T03:00")
    assert asked_time(kubernetes_job(**{AT: "2026-11-20T02:00Z"}), BERLIN) == found
    with pytest.raises(ValueError, match=r"annotation embertide\.dev/at is 'yesterday'; must be"):
        asked_time(kubernetes_job(**{AT: "yesterday"}), BERLIN)


class Memory(Cluster):
    """A cluster that keeps jobs; ``phases`` are what each job goes through as it is read."""

    def __init__(self, **phases: str) -> None:
        self.namespace, self.events = "shop", list[str]()
        self._jobs: dict[str, dict[str, Any]] = {}
        self._phases = phases

    def put(self, job: dict[str, Any], phase: str) -> None:
        job["metadata"].setdefault("uid", "u")
        self._jobs[job["metadata"]["name"]] = job | {"status": {"phase": phase}}

    def get(self, name: str) -> dict[str, Any] | None:
        found = self._jobs.get(name)
        if found is not None and found["status"]["phase"] == "Pending":
            day = name.split("-")[1][-2:]
            self.put(found, self._phases.get(f"d{day}", "Succeeded"))
            self.events.append(f"ended {day}")
            return found
        return found

    def jobs_of(self, schedule: str) -> list[dict[str, Any]]:
        assert schedule == "products"
        return list(self._jobs.values())

    def create(self, job: dict[str, Any]) -> dict[str, Any]:
        name = job["metadata"]["name"]
        if name in self._jobs:
            raise NameTaken(name)
        self.put(job, "Pending")
        self.events.append(f"created {name.split('-')[1][-2:]}")
        return job


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(backfill, "_POLL_SECONDS", 0.0)
    path = tmp_path / "job.yaml"
    path.write_text(EXAMPLE)
    return path


def jobs(template: Path, first: str = "2026-11-01", last: str = "2026-11-04") -> list[Any]:
    firings = firings_of(range_of(at(first), at(last), last, "1d"), ZoneInfo("UTC"))
    return [(job_of(template, firing), firing) for firing in firings]


def run(cluster: Memory, some: list[Any], parallel: int = 1) -> tuple[list[str], list[str]]:
    lines, outcomes = list[str](), list[str]()
    Backfill(cluster, parallel, lines.append, lambda o: outcomes.append(o.event)).run(some)
    return lines, outcomes


def test_one_after_another(template: Path) -> None:
    cluster = Memory()
    lines, outcomes = run(cluster, jobs(template))
    days = ["31", "01", "02", "03"]  # of UTC, for midnights in Berlin
    assert cluster.events == [f"{what} {day}" for day in days for what in ("created", "ended")]
    assert outcomes == ["created"] * 4
    assert lines[-1] == "products-20261103-2300: Succeeded"
    # The same again finds all done.
    assert run(cluster, jobs(template))[1] == ["exists"] * 4


def test_two_at_once(template: Path) -> None:
    cluster = Memory()
    run(cluster, jobs(template), parallel=2)
    assert cluster.events[:2] == ["created 31", "created 01"]
    unfinished = most = 0
    for event in cluster.events:
        unfinished += 1 if event.startswith("created") else -1
        most = max(most, unfinished)
    assert most == 2


def test_the_first_failure_ends_it(template: Path) -> None:
    cluster = Memory(d01="Failed")
    with pytest.raises(JobFailed) as caught:
        run(cluster, jobs(template))
    assert str(caught.value).startswith("products-20261101-2300 failed: ")
    assert str(caught.value).endswith(
        "Not submitted: products-20261102-2300 to products-20261103-2300; go on with --from"
        " 2026-11-02T23:00"
    )
    assert "created 02" not in cluster.events


def submit_one(cluster: Memory, template: Path, time: str, policy: Policy = Policy.ALLOW) -> str:
    firing = Firing.at(at(time), ZoneInfo("UTC"), backfill=True)
    return create(cluster, job_of(template, firing), firing, policy).event


@pytest.mark.parametrize("policy", Policy)
def test_no_policy_skips_a_back_fill(template: Path, policy: Policy) -> None:
    cluster = Memory()
    submit_one(cluster, template, "2026-11-01T03:00")
    assert submit_one(cluster, template, "2026-11-02T03:00", policy) == "created"


def test_older_data_does_not_become_current_after_later_data(template: Path) -> None:
    cluster = Memory()
    submit_one(cluster, template, "2026-11-05T03:00")
    with pytest.raises(JobFailed) as caught:
        submit_one(cluster, template, "2026-11-01T03:00")
    assert "products-20261101-0200 was not created: products-20261105-0200 " in str(caught.value)
    assert "publishes data of a later time to the same output" in str(caught.value)
    # One that has failed has published nothing, and outputs by date have no order.
    (later,) = cluster.jobs_of("products")
    cluster.put(later, "Failed")
    assert submit_one(cluster, template, "2026-11-01T03:00") == "created"
    cluster = Memory()
    template.write_text(EXAMPLE.replace("s3://shop/embeddings/products,", '"s3://shop/e/{date}",'))
    submit_one(cluster, template, "2026-11-05T03:00")
    assert submit_one(cluster, template, "2026-11-01T03:00") == "created"


def test_the_command_line(cli: Cli, template: Path) -> None:
    options = ("--from=2026-11-01T03:00", "--to=2026-11-03", "--time-zone=Europe/Berlin")
    code, out, _ = cli("submit", str(template), *options, "--dry-run")
    assert code == 0
    names = re.findall(r"^  name: (.*)$", out, re.MULTILINE)
    assert names == [f"products-2026110{day}-0200" for day in (1, 2, 3)]
    assert out.count(naming.SCHEDULED_TIME) == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--from=2026-11-01",), "give --at, or --from and --to"),
        (("--to=2026-11-01",), "give --at, or --from and --to"),
        (("--at=now", "--from=2026-11-01", "--to=2026-11-02"), "give --at, or --from and --to"),
        (("--from=soon", "--to=2026-11-02"), "--from is 'soon'; must be now, or a time"),
        (("--from=2026-11-03", "--to=2026-11-02"), "which is before --from"),
        (("--from=2026-11-01", "--to=2026-11-02", "--parallel=0"), "--parallel"),
    ],
)
def test_wrong_ranges(cli: Cli, template: Path, options: tuple[str, ...], says: str) -> None:
    code, _, err = cli("submit", str(template), *options)
    assert code == 2
    assert says in " ".join(err.replace("│", " ").split())
