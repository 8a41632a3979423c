"""The runbooks' commands, run while a job works: labels, paths and fields are those of today."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.cluster.installation import RELEASE
from tests.support.cluster.jobs import Inputs, Jobs, workers
from tests.support.cluster.schedules import IDLE, show_idle_schedule
from tests.support.document_blocks import blocks, documents

pytestmark = pytest.mark.cluster

RUNBOOKS = [page for page in documents() if page.startswith("docs/runbooks/")]
LEFT_OUT = {
    " top pods": "needs a metrics server, which the node has not",
    " --previous": "the operator's container was never started again",
    "get podmonitors": "the kind comes with prometheus-operator; test_chart.py has it for a while",
    "logs JOB-push": "test_push.py has such pods, which end within seconds",
    "embertide plan job.yaml": "tests/distributed/test_newcomer.py runs it",
}
"""Parts of commands that are not run, and why."""


def commands() -> list[str]:
    """Those of all runbooks, once each, without what a pipe takes from their output."""
    found = (line for page in RUNBOOKS for block in blocks(page) for line in block.commands)
    return sorted({line.partition(" | ")[0] for line in found})


def test_the_commands_run(
    tiny: Inputs, small: Inputs, jobs: Jobs, operator: str, tmp_path: Path
) -> None:
    cluster, output = jobs.cluster, f"{jobs.root}/done"
    jobs.apply(
        tiny.job("done", output), small.job("held", f"{jobs.root}/held", workers=workers(2, 1))
    )
    show_idle_schedule(jobs)
    jobs.kubectl("create", "job", "idle-now", f"--from=cronjob/{IDLE}")
    path = [cluster.programs["kubectl"].parent, Path(".venv/bin").resolve(), os.environ["PATH"]]
    env = os.environ | {
        "PATH": os.pathsep.join(map(str, path)),
        "KUBECONFIG": str(cluster.kubeconfig),
        "AWS_ENDPOINT_URL": cluster.s3.endpoint,
    }
    with jobs.held("held", 1, "infer"):
        jobs.await_("done", lambda status: status.get("phase") == "Succeeded")
        node = cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
        used = set()
        for command in commands():
            reasons = {part for part in LEFT_OUT if part in command}
            used |= reasons
            if reasons:
                continue
            of_operator = "component=operator" in command or "serviceaccount" in command
            namespace = RELEASE if of_operator else jobs.namespace
            text = command.replace("NAMESPACE", namespace).replace("JOB-RANK", "held-1")
            for name, own in (
                ("SCHEDULE", IDLE),
                ("JOB", "held"),
                ("NODE", node),
                ("URI", output),
                ("NAME", operator),
            ):
                text = text.replace(name, own)
            ended = subprocess.run(
                ["bash", "-euc", text], cwd=tmp_path, env=env, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60,
            )  # fmt: skip
            assert ended.returncode == 0, f"{text}\n{ended.stdout}"
            selects = " -l " in text or " get ej" in text or "involvedObject" in text
            assert not selects or "No resources found" not in ended.stdout, text
    assert used == set(LEFT_OUT), "a reason for a command that no runbook has"
