"""A day that is run again by kubectl from the CronJob, as the page says it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from embertide.spec import naming
from tests.support.cluster.jobs import Inputs, Jobs, workers
from tests.support.cluster.schedules import create_example, ended, true_conditions
from tests.support.document_blocks import blocks

pytestmark = pytest.mark.cluster


def run_page(jobs: Jobs, folder: Path, day: str) -> None:
    """The page's commands, in this namespace, for a day of November."""
    (block,) = (b for b in blocks("docs/schedules.md", "") if "annotate --local" in b.text)
    text = block.text.replace("20261120", f"202611{day}").replace("2026-11-20", f"2026-11-{day}")
    config = folder / "kubeconfig"
    config.write_bytes(jobs.cluster.kubeconfig.read_bytes())
    kubectl = jobs.cluster.programs["kubectl"].parent
    env = os.environ | {"KUBECONFIG": str(config), "PATH": f"{kubectl}:{os.environ['PATH']}"}
    enter = f"kubectl config set-context --current --namespace={jobs.namespace}\n"
    command = ["bash", "-euo", "pipefail", "-c", enter + text]
    subprocess.run(command, env=env, check=True, timeout=60)


def end_of(jobs: Jobs, name: str) -> tuple[str, str]:
    """The condition with which a Job of the batch API ended, and its log."""
    found = true_conditions(ended(jobs, name))
    kind = "Complete" if "Complete" in found else "Failed"
    return kind, jobs.kubectl("logs", f"job/{name}")


def test_a_day_by_kubectl(tiny: Inputs, jobs: Jobs, tmp_path: Path) -> None:
    job = tiny.job("products", f"{jobs.root}/out", workers=workers(1, 1))
    # No other firing but those of the test.
    create_example(jobs, job["spec"], suspend=True)
    run_page(jobs, tmp_path, "20")
    kind, log = end_of(jobs, "products-20261120")
    assert (kind, log) == ("Complete", "products-20261120-0200 created\n")
    jobs.complete("products-20261120-0200")
    made = jobs.cluster.get("-n", jobs.namespace, "ej", "products-20261120-0200")
    assert made["metadata"]["annotations"][naming.SCHEDULED_TIME] == "2026-11-20T02:00:00Z"
    tiny.check(f"{jobs.root}/out")
    # The day before would replace newer data by older.
    run_page(jobs, tmp_path, "19")
    kind, log = end_of(jobs, "products-20261119")
    assert kind == "Failed"
    assert "publishes data of a later time to the same output" in log
    assert list(jobs.statuses()) == ["products-20261120-0200"]
    assert len(tiny.versions(f"{jobs.root}/out")) == 1
