"""What GitOps tools make of a job: Argo CD by our script, others by its conditions (kstatus).

The script is run by the Lua that Argo CD has (gopher-lua), kstatus is the library itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import chart
from tests.support.operator_world import World, raw_job
from tools.pages.chart import CHART

pytestmark = pytest.mark.needs("charts", "kstatus")

SCRIPT = (CHART / "files" / "argocd-health.lua").read_text()


def health(job: dict[str, Any], folder: Path) -> tuple[str, str]:
    """(status, message) for a job."""
    program = folder / "health.lua"
    tail = 'local found = health()\nprint(found.status .. "|" .. found.message)\n'
    program.write_text(f"obj = {_lua(job)}\nlocal function health()\n{SCRIPT}\nend\n{tail}")
    ran = chart.run("glua", str(program))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    status, _, message = ran.stdout.strip().partition("|")
    return status, message


def kstatus(job: dict[str, Any]) -> str:
    """``InProgress``, ``Current`` or ``Failed``, as Flux, kpt and Helm 4 see a job."""
    ran = chart.run("kstatus", input=json.dumps(job))
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.partition("|")[0]


def _lua(value: Any) -> str:
    """A JSON value as Lua's tables, as Argo CD hands it over."""
    if isinstance(value, dict):
        items = (f"[{json.dumps(key)}] = {_lua(item)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(_lua(item) for item in value) + "}"
    return "nil" if value is None else json.dumps(value)


def test_a_job_from_its_creation_to_its_end(tmp_path: Path) -> None:
    """The statuses are those that the operator decides on."""
    world = World()
    assert health(world.job, tmp_path)[0] == "Progressing"
    world.reconcile()
    status, message = health(world.job, tmp_path)
    assert (status, message.partition(":")[0]) == ("Progressing", "Starting")
    assert kstatus(world.job) == "InProgress"
    pods = world.pods(world.running(), world.running())
    world.reconcile(5, pods=pods, report=world.report())
    assert health(world.job, tmp_path)[1].startswith("Running: infer")
    assert kstatus(world.job) == "InProgress"
    world.reconcile(5, pods=pods, report=world.report("succeeded"))
    version = world.status["versions"][-1]
    assert health(world.job, tmp_path) == ("Healthy", f"published version {version}")
    assert kstatus(world.job) == "Current"


def test_a_change_that_the_operator_has_not_seen_is_in_progress(tmp_path: Path) -> None:
    world = World()
    world.reconcile()
    world.job["metadata"]["generation"] = 2
    assert health(world.job, tmp_path)[0] == "Progressing"
    assert kstatus(world.job) == "InProgress"


@pytest.mark.parametrize(
    ("spec", "status", "said", "stalled"),
    [
        ({"suspend": True}, "Suspended", "spec.suspend is true", "InProgress"),
        (
            {"workers": {"resources": {"limits": {"cpu": "much"}}}},
            "Degraded",
            "is 'much'",
            "Failed",
        ),
    ],
)
def test_what_waits_for_a_person(
    spec: dict[str, Any], status: str, said: str, stalled: str, tmp_path: Path
) -> None:
    world = World(**spec)
    world.reconcile()
    found, message = health(world.job, tmp_path)
    assert found == status
    assert said in message
    assert kstatus(world.job) == stalled


def test_a_job_whose_inputs_are_late(tmp_path: Path) -> None:
    given = raw_job()["spec"]["input"]
    given["edges"][0]["ready"] = {"object": "_SUCCESS"}
    world = World(input=given)
    world.reconcile()
    status, message = health(world.job, tmp_path)
    assert (status, message.partition(":")[0]) == ("Progressing", "Waiting")
    assert "the first look at the inputs is being taken" in message
    assert kstatus(world.job) == "InProgress"


def test_a_failed_job_says_why(tmp_path: Path) -> None:
    world = World(activeDeadlineSeconds=60)
    world.reconcile()
    world.reconcile(120)
    status, message = health(world.job, tmp_path)
    assert status == "Degraded"
    assert "activeDeadlineSeconds" in message
    assert kstatus(world.job) == "Failed"


@pytest.mark.parametrize("phase", ["Pending", "Waiting"])
def test_a_job_that_waits_says_what_for(tmp_path: Path, phase: str) -> None:
    world = World()
    world.reconcile(queued="it takes 2 workers, and at most 1 workers run at once")
    world.status["phase"] = phase
    status, message = health(world.job, tmp_path)
    assert (status, message) == (
        "Progressing",
        f"{phase}: waiting for room: it takes 2 workers, and at most 1 workers run at once",
    )
    assert kstatus(world.job) == "InProgress"


def test_a_job_with_too_many_workers_is_degraded(tmp_path: Path) -> None:
    world = World(workers={"grid": {"graph": 300}, "resources": {"limits": {"memory": "1Gi"}}})
    world.reconcile()
    status, message = health(world.job, tmp_path)
    assert (status, "asks for 300 workers" in message) == ("Degraded", True)
    assert kstatus(world.job) == "Failed"


def test_a_job_that_has_not_been_looked_at_is_in_progress(tmp_path: Path) -> None:
    """A status without conditions, as of a phase that a later release adds."""
    world = World()
    world.job["status"] = {"phase": "Pending", "observedGeneration": 1}
    assert health(world.job, tmp_path) == ("Progressing", "Pending: not started")
