"""The programs of docs/orchestrators.md, as they stand, with real Airflow and real Dagster.

The API server is that of ``api_server.py``, and the test is the operator: it sets the statuses.
``tests/cluster/test_orchestrators.py`` has the real ones.
"""

from __future__ import annotations

import ast
import datetime
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from embertide.spec.manifest import EmbeddingJob
from embertide.submit.cluster import Cluster
from tests.support.api_server import ApiServer, api_server
from tests.support.go_programs import program
from tests.support.orchestrators import block, environment_of, run_dag, run_dagster
from tests.support.paths import ROOT

pytestmark = pytest.mark.distributed

VERSION = "20261121T041922Z-3fa9c1"
OUTPUT = {"version": VERSION, "uri": "s3://shop/e", "rows": 64, "dim": 8}
SUCCEEDED = {
    "phase": "Succeeded",
    "conditions": [{"type": "Complete", "status": "True", "reason": "Published"}],
    "output": OUTPUT,
}
FAILED = {
    "phase": "Failed",
    "conditions": [
        {"type": "Complete", "status": "False", "reason": "Input", "message": ""},
        {"type": "Stalled", "status": "True", "reason": "Input", "message": "row 3 is NaN"},
    ],
}
GOOD, BAD = "2026-11-20", "2026-11-21"
JOB: dict[str, Any] = yaml.safe_load(block("products.yaml"))
DRIVER = """
import json, dagster as dg, products as p
p.POLL_SECONDS = 0.2
i = dg.DagsterInstance.ephemeral()
good = dg.materialize([p.products], partition_key="2026-11-20", instance=i)
again = dg.materialize([p.products], partition_key="2026-11-20", instance=i)
index = dg.materialize([p.products, p.index], selection=[p.index], instance=i)
loaded = index.asset_materializations_for_node("index")[0].metadata["version"].value
bad = dg.materialize([p.products], partition_key="2026-11-21", instance=i, raise_on_error=False)
(step,) = bad.get_step_failure_events()
seen = p.nightly(dg.build_sensor_context(instance=i))
later = p.nightly(dg.build_sensor_context(instance=i, cursor=seen.cursor))
print(json.dumps({
    "good": good.success, "again": again.success, "loaded": loaded, "bad": bad.success,
    "why": step.event_specific_data.error.message + str(
        step.event_specific_data.user_failure_data.description),
    "seen": [e.metadata["version"].value for e in seen.asset_events], "later": later.asset_events,
}))
"""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """Every job that is created succeeds within a second, but for the bad day's."""
    over = threading.Event()

    def operate() -> None:
        while not over.wait(0.1):
            for job in running.listed("embeddingjobs", "", "")[0]:
                if "status" not in job:
                    bad = job["metadata"]["name"].endswith(BAD.replace("-", ""))
                    running.put("embeddingjobs", {**job, "status": FAILED if bad else SUCCEEDED})

    with api_server() as running:
        thread = threading.Thread(target=operate)
        thread.start()
        yield running
        over.set()
        thread.join()


@pytest.fixture
def kubeconfig(server: ApiServer, tmp_path: Path) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def test_templates_are_jobs() -> None:
    text = block("products.yaml").replace("{{ ds_nodash }}", "20261120").replace("{{ ds }}", GOOD)
    EmbeddingJob.model_validate(yaml.safe_load(text))
    workflow = yaml.safe_load(block("workflow.yaml"))
    (refresh,) = (t for t in workflow["spec"]["templates"] if t["name"] == "refresh")
    job = yaml.safe_load(refresh["resource"]["manifest"])
    assert job["metadata"].pop("generateName") == "products-"
    EmbeddingJob.model_validate(job | {"metadata": {"name": "products-x"}})
    (output,) = refresh["outputs"]["parameters"]
    assert output["valueFrom"]["jsonPath"] == "{.status.output.version}"


# What the releases of Airflow's provider for Kubernetes of twelve months require of the client.
BOUNDS = {
    "10.10.0": ">=32.0.0,<35.0.0",
    "10.12.2": ">=35.0.0,<36.0.0",
    "10.18.0": ">=35.0.0,!=36.0.0,<37.0.0",
    "10.25.0": ">=36.0.1,<37.0.0",
}
CLIENTS = ("32.0.1", "33.1.0", "34.1.0", "35.0.0", "36.0.3", "37.0.1")


def submit_requires() -> list[Requirement]:
    """What ``pip install 'embertide[submit]'`` installs, by its metadata."""
    found = [Requirement(text) for text in requires("embertide") or ()]
    return [one for one in found if one.marker is None or one.marker.evaluate({"extra": "submit"})]


@pytest.mark.parametrize("provider", BOUNDS)
def test_every_provider_of_a_year_allows_a_client_that_submit_allows(provider: str) -> None:
    (ours,) = (one.specifier for one in submit_requires() if one.name == "kubernetes")
    assert any((ours & SpecifierSet(BOUNDS[provider])).contains(client) for client in CLIENTS)


@pytest.mark.needs("airflow")
def test_submit_runs_with_the_packages_of_airflow(kubeconfig: Path, server: ApiServer) -> None:
    python = environment_of("airflow") / "python"
    versions = "print({d.name.lower(): d.version for d in importlib.metadata.distributions()})"
    run = partial(subprocess.run, capture_output=True, text=True)
    there = ast.literal_eval(
        run([python, "-c", f"import importlib.metadata; {versions}"], check=True).stdout
    )
    assert [one for one in submit_requires() if not one.specifier.contains(there[one.name])] == []
    env = os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT / "worker")}
    done = run([python, "-m", "embertide", "logs", "products", "--namespace", "shop"], env=env)
    assert (done.returncode, "products" in done.stderr) == (9, True), done.stderr


def test_a_date_in_a_template_is_sent_as_text(
    kubeconfig: Path, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """YAML reads 2026-11-22 as a date, which JSON has none of."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    annotations = {"day": datetime.date(2026, 11, 22)}
    place = {"name": "dated", "namespace": "shop", "annotations": annotations}
    Cluster.connect("shop").create({"metadata": place})
    job = server.find("embeddingjobs", "shop", "dated")
    assert job is not None
    assert job["metadata"]["annotations"] == {"day": "2026-11-22"}


@pytest.mark.needs("airflow")
def test_airflow_waits_and_hands_the_version_on(
    server: ApiServer, kubeconfig: Path, tmp_path: Path
) -> None:
    code, output = run_dag(tmp_path / "airflow", JOB, kubeconfig, GOOD)
    assert (code, f"loading version {VERSION}" in output) == (0, True), output[-5000:]
    job = server.find("embeddingjobs", "shop", "products-20261120")
    assert job is not None
    assert job["spec"]["input"]["edges"][0]["uri"] == "s3://shop/edges/dt=2026-11-20/"


@pytest.mark.needs("airflow")
def test_airflow_fails_at_once_with_the_reason_of_the_job(
    server: ApiServer, kubeconfig: Path, tmp_path: Path
) -> None:
    code, output = run_dag(tmp_path / "airflow", JOB, kubeconfig, BAD)
    assert code != 0
    assert "Input: row 3 is NaN" in output, output[-5000:]
    assert "loading version" not in output


@pytest.mark.needs("dagster")
def test_dagster_materializes_fails_and_senses(
    server: ApiServer, kubeconfig: Path, tmp_path: Path
) -> None:
    labels = {"embertide.dev/schedule": "products"}
    place = {"name": "products-20261119-0300", "namespace": "shop", "labels": labels}
    server.put("embeddingjobs", {"metadata": place})
    time.sleep(1)
    code, output, errors = run_dagster(tmp_path / "dagster", JOB, kubeconfig, DRIVER)
    assert code == 0, errors[-5000:]
    found = json.loads(output.splitlines()[-1])
    assert "Input: row 3 is NaN" in found.pop("why")
    assert found == {
        "good": True,
        "again": True,
        "loaded": VERSION,
        "bad": False,
        "seen": [VERSION],
        "later": [],
    }


@pytest.mark.needs("argo")
def test_argos_conditions_tell_the_ends_of_a_job_apart() -> None:
    (refresh,) = (
        t for t in yaml.safe_load(block("workflow.yaml"))["spec"]["templates"] if "resource" in t
    )
    resource = refresh["resource"]
    statuses = [{}, {"phase": "Pending"}, {"phase": "Running"}, SUCCEEDED, FAILED]
    text = "".join(json.dumps({"status": status}) + "\n" for status in statuses)

    def holds(condition: str) -> list[bool]:
        command = [str(program("argo-condition")), condition]
        lines = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        return [line == "true" for line in lines.stdout.splitlines()]

    assert holds(resource["successCondition"]) == [False, False, False, True, False]
    assert holds(resource["failureCondition"]) == [False, False, False, False, True]
