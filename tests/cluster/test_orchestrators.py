"""The programs of docs/orchestrators.md on a real cluster, with the operator, to a real version."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster.jobs import Inputs, Jobs
from tests.support.go_programs import program
from tests.support.orchestrators import block, run_dag, run_dagster

pytestmark = [pytest.mark.cluster, pytest.mark.needs("airflow", "dagster", "argo")]

DAY, NAME = "2026-11-20", "products-20261120"
DRIVER = """
import dagster as dg, products as p
p.POLL_SECONDS = 1
i = dg.DagsterInstance.ephemeral()
run = dg.materialize([p.products], partition_key="2026-11-20", instance=i)
print(run.asset_materializations_for_node("products")[0].metadata["version"].value)
"""


def template(tiny: Inputs, jobs: Jobs, output: str) -> dict[str, Any]:
    """The page's template with inputs that are there."""
    job = tiny.job("products-{{ ds_nodash }}", output)
    job["metadata"]["namespace"] = jobs.namespace
    return job


def ended(jobs: Jobs, name: str) -> tuple[str, str]:
    """Phase and version, by the page's commands."""
    jobs.kubectl(
        "wait", f"embeddingjob/{name}", "--for=jsonpath={.status.completionTime}", "--timeout=600s"
    )
    path = "jsonpath={.status.phase} {.status.output.version}"
    phase, _, version = jobs.kubectl("get", f"embeddingjob/{name}", "-o", path).partition(" ")
    return phase, version


def holds(condition: str, job: dict[str, Any]) -> bool:
    command = [str(program("argo-condition")), condition]
    done = subprocess.run(
        command, input=json.dumps(job) + "\n", capture_output=True, text=True, check=True
    )
    return done.stdout.strip() == "true"


def test_airflow_and_dagster_hand_on_what_the_job_published(
    tiny: Inputs, jobs: Jobs, tmp_path: Path
) -> None:
    output = f"{jobs.root}/out"
    job, kubeconfig = template(tiny, jobs, output), jobs.cluster.kubeconfig
    code, said = run_dag(tmp_path / "airflow", job, kubeconfig, DAY)
    assert code == 0, said[-5000:]
    (version,) = tiny.versions(output)
    assert f"loading version {version}" in said
    tiny.check(output)
    # Another tool that is asked for the same day finds the same job.
    code, said, errors = run_dagster(tmp_path / "dagster", job, kubeconfig, DRIVER)
    assert (code, said.splitlines()[-1:]) == (0, [version]), errors[-5000:]
    assert ended(jobs, NAME) == ("Succeeded", version)


@pytest.mark.tier(3)
def test_every_tool_sees_that_a_job_failed(tiny: Inputs, jobs: Jobs, tmp_path: Path) -> None:
    job = template(tiny, jobs, f"{jobs.root}/out")
    job["spec"]["model"]["uri"] = f"{jobs.root}/no-model"
    code, said = run_dag(tmp_path / "airflow", job, jobs.cluster.kubeconfig, DAY)
    assert code != 0
    status = jobs.status(NAME)
    reason = next(c["reason"] for c in status["conditions"] if c["type"] == "Stalled")
    assert f"{reason}: " in said, said[-5000:]
    assert "loading version" not in said
    code, _, errors = run_dagster(tmp_path / "dagster", job, jobs.cluster.kubeconfig, DRIVER)
    assert code != 0
    assert f"{reason}: " in errors
    assert ended(jobs, NAME) == ("Failed", "")
    templates = yaml.safe_load(block("workflow.yaml"))["spec"]["templates"]
    (resource,) = (t["resource"] for t in templates if "resource" in t)
    found = json.loads(jobs.kubectl("get", f"embeddingjob/{NAME}", "-o", "json"))
    assert holds(resource["failureCondition"], found)
    assert not holds(resource["successCondition"], found)
