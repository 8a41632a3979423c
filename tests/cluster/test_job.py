"""A job from ``kubectl apply`` to published embeddings, and what people see on the way."""

from __future__ import annotations

import pytest
import yaml

from tests.support.cluster.jobs import Inputs, Jobs, find_condition, workers

pytestmark = pytest.mark.cluster


def test_apply_to_complete_on_a_2x2_grid(small: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/embeddings"
    job = small.job("products", output, workers=workers(2, 2))
    jobs.apply(job)
    jobs.kubectl("wait", "--for=condition=WorkersReady", "ej/products", "--timeout=180s")
    pods = jobs.pods()
    assert sorted(pod["metadata"]["name"] for pod in pods) == [f"products-{i}" for i in range(4)]
    assert all(pod["spec"]["automountServiceAccountToken"] is False for pod in pods)
    table = jobs.kubectl("get", "ej").splitlines()
    columns = ["NAME", "PHASE", "STAGE", "PROGRESS", "READY", "ATTEMPT", "AGE", "MISSING"]
    assert table[0].split() == columns
    assert "4/4" in table[1].split()

    jobs.kubectl("wait", "--for=condition=Complete", "ej/products", "--timeout=240s")
    status = jobs.status("products")
    small.check(output)
    assert status["output"]["rows"] == len(small.reference)
    assert small.versions(output) == [status["output"]["version"]]
    assert status["plan"]["grid"] == "2x2"
    assert (status["attempt"], status["failures"]) == (1, 0)
    assert status["observedGeneration"] == 1
    jobs.await_no_pods()
    await_no_children(jobs)
    wide = jobs.kubectl("get", "ej", "-o", "wide")
    assert status["output"]["version"] in wide
    reasons = [reason for reason in jobs.reasons("products") if reason != "StageStarted"]
    expected = ["Accepted", "AttemptStarted", "WorkersReady", "Published", "Completed"]
    assert sorted(reasons) == sorted(expected)
    assert jobs.reasons("products")[-2:] == ["Published", "Completed"]

    jobs.await_("products", lambda s: find_condition(s, "WorkersReady")["reason"] == "Stopped")
    before = objects(jobs)
    again = jobs.kubectl("apply", "-f", "-", input=yaml.safe_dump(job))
    assert again.strip() == "embeddingjob.embertide.dev/products unchanged"
    assert objects(jobs) == before, "nothing is done twice"
    jobs.kubectl("delete", "ej", "products")
    await_no_children(jobs)


def await_no_children(jobs: Jobs) -> None:
    """A job that has finished or is deleted keeps none of its objects."""
    kinds = ("sts,svc,cm,pdb,netpol", "-l", "embertide.dev/job", "-o", "name")
    jobs.cluster.wait_for(lambda: not jobs.kubectl("get", *kinds), 90, "children are gone")


def objects(jobs: Jobs) -> list[str]:
    """The jobs and what they own; the operator's heartbeats change all the time."""
    owned = ("sts,cm,svc", "-l", "embertide.dev/job")
    return [jobs.kubectl("get", *kinds, "-o", "yaml") for kinds in (("ej",), owned)]


def test_explain_reads_well(jobs: Jobs) -> None:
    text = jobs.kubectl("explain", "ej.spec")
    for field in ("input", "model", "output", "workers", "backoffLimit"):
        assert field in text
    assert "no description" not in text.lower()


def test_a_second_job_with_the_same_output_waits(small: Inputs, jobs: Jobs) -> None:
    output = f"{jobs.root}/shared"
    first, second = (small.job(name, output) for name in ("first", "second"))
    second["spec"]["output"]["uri"] += "/"
    jobs.apply(first)
    jobs.await_("first", lambda s: s.get("attempt") == 1)
    jobs.apply(second)
    status = jobs.await_("second", lambda s: find_condition(s, "Progressing"))
    waiting = find_condition(status, "Progressing")
    assert (waiting["reason"], status["attempt"]) == ("OutputInUse", 0)
    assert f"{jobs.namespace}/first" in waiting["message"]
    done = [jobs.complete(name) for name in ("first", "second")]
    assert done[0]["completionTime"] <= done[1]["startTime"]
    assert len(small.versions(output)) == 2
