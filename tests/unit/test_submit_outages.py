"""``embertide submit`` while the API server is away, and where a job goes as it is created.

Only what cannot be brought about at will on a real API server is played here; the rest is in
``tests/cluster/test_schedules_by_hand.py``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from embertide.errors import ClusterError, JobFailed
from embertide.submit import wait
from embertide.submit.cluster import Cluster, NameTaken
from embertide.submit.create import create
from embertide.submit.firing import Firing
from embertide.submit.policy import Policy
from embertide.submit.template import job_of
from embertide.submit.wait import wait_for
from tests.support.manifests import EXAMPLE

RUNNING = {"status": {"phase": "Running"}}
DONE = {"status": {"phase": "Succeeded", "output": {"version": "v"}}}


class Answering(Cluster):
    """A cluster that answers reads in turn, the last one for ever; None is ``no such job``."""

    def __init__(self, *answers: dict[str, Any] | ClusterError | None) -> None:
        self.namespace, self._answers = "shop", list(answers)

    def get(self, name: str) -> dict[str, Any] | None:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    def create(self, job: dict[str, Any]) -> dict[str, Any]:
        raise NameTaken(job["metadata"]["name"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "_POLL_SECONDS", 0.0)


def test_waiting_outlasts_an_outage() -> None:
    away, said = ClusterError("no answer"), list[str]()
    status = wait_for(Answering(RUNNING, away, away, RUNNING, away, DONE), "products", said.append)
    assert status == DONE["status"]
    assert said == ["products: Running", "products: Succeeded, version v"]


def test_waiting_gives_up_on_an_api_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "_PATIENCE_SECONDS", 0.0)
    with pytest.raises(ClusterError, match="no answer"):
        wait_for(Answering(RUNNING, ClusterError("no answer")), "products", lambda _: None)


def test_waiting_ends_with_a_job_that_is_gone() -> None:
    with pytest.raises(JobFailed, match="products was deleted before it ended"):
        wait_for(Answering(RUNNING, None), "products", lambda _: None)


def test_a_job_that_goes_as_it_is_created(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(EXAMPLE)
    firing = Firing.at(datetime(2026, 11, 22, 3, tzinfo=UTC), ZoneInfo("UTC"))
    with pytest.raises(ClusterError, match="was deleted as it was created; submit again"):
        create(Answering(None), job_of(path, firing), firing, Policy.ALLOW)
