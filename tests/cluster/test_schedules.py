"""Schedules by the real CronJob controller: at the minute, late, twice, by hand, and waiting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from embertide.spec import naming
from embertide.submit.firing import SCHEDULED, time_of_job
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import CHART, NAMESPACE, RELEASE
from tests.support.cluster.jobs import Inputs, Jobs, Manifest, workers
from tests.support.cluster.schedules import create_example, ended, true_conditions

pytestmark = pytest.mark.cluster

_NEVER = {"schedule": "0 0 1 1 *", "suspend": True}


@pytest.fixture(scope="module")
def scheduled(
    cluster: KubernetesCluster,
    operator: str,
    tiny: Inputs,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Jobs]:
    """The release with three schedules in a fresh namespace.

    ``every`` fires each minute, at once for one that its controller has missed; ``waits`` and
    ``broken`` wait for their jobs and only fire by hand.
    """
    del operator
    folder, jobs = tmp_path_factory.mktemp("values"), Jobs(cluster, cluster.namespace("schedules"))
    every = _schedule(
        tiny, jobs, "every", concurrencyPolicy="Allow", schedule="* * * * *", suspend=True
    )
    waits = _schedule(tiny, jobs, "waits", wait=True, **_NEVER)
    broken = _schedule(tiny, jobs, "broken", wait=True, **_NEVER)
    missing = f"{jobs.root}/nothing/{{date}}/"
    broken["jobTemplate"]["spec"]["input"]["edges"][0]["uri"] = missing
    _upgrade(cluster, folder, [every, waits, broken])
    # As a controller leaves it that is away for some minutes.
    last = f"{datetime.now(UTC) - timedelta(minutes=3):%Y-%m-%dT%H:%M:00Z}"
    status = json.dumps({"status": {"lastScheduleTime": last}})
    jobs.kubectl("patch", "cronjob", "every", "--subresource=status", "--type=merge", "-p", status)
    jobs.kubectl("patch", "cronjob", "every", "-p", '{"spec": {"suspend": false}}')
    yield jobs
    _upgrade(cluster, folder, [])
    cluster.discard(jobs.namespace)


def test_a_missed_firing_runs_once_late_or_twice(tiny: Inputs, scheduled: Jobs) -> None:
    """The newest of those that were missed runs, once, also when a second Job is made for it."""
    late = scheduled.cluster.wait_for(lambda: _fired(scheduled), 60, "the missed firing")[0]
    status = scheduled.complete(late)
    made = _embedding_jobs(scheduled)[late]["metadata"]
    minute = datetime.fromisoformat(made["annotations"][naming.SCHEDULED_TIME])
    assert late == _name("every", minute)
    assert (minute.second, minute <= datetime.fromisoformat(made["creationTimestamp"])) == (0, True)
    # The dates are those of the scheduled time, whenever the job was created.
    output = f"{scheduled.root}/every/{minute:%Y-%m-%dT%H-%M}"
    assert tiny.versions(output) == status["versions"]
    tiny.check(output)

    _make_again(scheduled, late)
    assert f"{late} exists (Succeeded)" in _logs(scheduled, "again")
    assert _embedding_jobs(scheduled)[late]["metadata"]["uid"] == made["uid"]
    assert len(tiny.versions(output)) == 1


def test_waiting_pods_end_as_their_jobs_do(scheduled: Jobs) -> None:
    for name in ("waits", "broken"):
        scheduled.kubectl("create", "job", f"{name}-now", f"--from=cronjob/{name}")
    done = ended(scheduled, "waits-now")
    assert true_conditions(done)["Complete"] == "CompletionsReached"
    (name,) = (found for found in scheduled.statuses() if found.startswith("waits-"))
    assert name == naming.scheduled_name("waits", time_of_job(done))
    assert f"{name}: Succeeded, version " in _logs(scheduled, "waits-now")

    failed = ended(scheduled, "broken-now")
    assert true_conditions(failed)["Failed"] == "PodFailurePolicy"
    (pod,) = (p for p in scheduled.pods() if p["metadata"]["name"].startswith("broken-now"))
    state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert state["exitCode"] == 10
    day = time_of_job(failed).strftime("%Y-%m-%d")
    assert f"{scheduled.root}/nothing/{day}/" in _logs(scheduled, "broken-now")


def test_the_example_without_helm(tiny: Inputs, jobs: Jobs) -> None:
    """Two Jobs by hand; those of one minute are one firing."""
    job = tiny.job("products", f"{jobs.root}/out/{{date}}", suspend=True)
    create_example(jobs, job["spec"])
    for name in ("first", "second"):
        jobs.kubectl("create", "job", name, "--from=cronjob/products")
        assert "Complete" in true_conditions(ended(jobs, name)), _logs(jobs, name)
    made = [jobs.cluster.get("-n", jobs.namespace, "job", name) for name in ("first", "second")]
    names = [naming.scheduled_name("products", time_of_job(job)) for job in made]
    # In the next minute it is another firing, which Forbid skips while the first is suspended.
    assert set(jobs.statuses()) == {names[0]}
    expected = "exists" if names[0] == names[1] else f"skipped: {names[0]} is not finished"
    assert expected in _logs(jobs, "second")


def test_the_next_firing_is_in_time(scheduled: Jobs) -> None:
    """Stands last, since it waits for a minute of the clock, which begins with the fixture."""
    found = scheduled.cluster.wait_for(lambda: _fired(scheduled)[1:], 90, "the next firing")
    scheduled.kubectl("patch", "cronjob", "every", "-p", '{"spec": {"suspend": true}}')
    made = _embedding_jobs(scheduled)[found[0]]["metadata"]
    minute = datetime.fromisoformat(made["annotations"][naming.SCHEDULED_TIME])
    delay = datetime.fromisoformat(made["creationTimestamp"]) - minute
    assert timedelta(0) <= delay < timedelta(seconds=60)


def _schedule(inputs: Inputs, jobs: Jobs, name: str, **fields: Any) -> Manifest:
    """A value of the chart whose jobs publish below their minute."""
    output = f"{jobs.root}/{name}/{{datetime:%Y-%m-%dT%H-%M}}"
    spec = inputs.job(name, output, workers=workers(1, 1))["spec"]
    return {"name": name, "namespace": jobs.namespace, "jobTemplate": {"spec": spec}} | fields


def _upgrade(cluster: KubernetesCluster, folder: Path, schedules: list[Manifest]) -> None:
    values = folder / "values.json"
    values.write_text(json.dumps({"schedules": schedules}))
    options = ("--namespace", NAMESPACE, "--reuse-values", "--values", str(values))
    cluster.helm("upgrade", RELEASE, str(CHART), *options)


def _fired(jobs: Jobs) -> list[str]:
    """The jobs of ``every``, oldest first."""
    return sorted(name for name in jobs.statuses() if name.startswith("every-"))


def _name(schedule: str, minute: datetime) -> str:
    return naming.scheduled_name(schedule, minute)


def _embedding_jobs(jobs: Jobs) -> dict[str, Manifest]:
    found = jobs.cluster.get("-n", jobs.namespace, "ej")["items"]
    return {item["metadata"]["name"]: item for item in found}


def _make_again(jobs: Jobs, name: str) -> None:
    """A second Job for the firing of an EmbeddingJob, as the controller made the first; its end."""
    time = _embedding_jobs(jobs)[name]["metadata"]["annotations"][naming.SCHEDULED_TIME]
    found = jobs.cluster.get("-n", jobs.namespace, "jobs")["items"]
    scheduled = {item["metadata"]["annotations"].get(SCHEDULED): item for item in found}
    assert list(scheduled).count(time) == 1, scheduled.keys()
    cron_job = jobs.cluster.get("-n", jobs.namespace, "cronjob", "every")
    again = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "again", "annotations": {SCHEDULED: time}},
        "spec": cron_job["spec"]["jobTemplate"]["spec"],
    }
    jobs.apply(again)
    assert "Complete" in true_conditions(ended(jobs, "again"))


def _logs(jobs: Jobs, job: str) -> str:
    return jobs.kubectl("logs", f"job/{job}")
