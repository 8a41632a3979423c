"""``embertide submit`` against the real API server: policies, and what it refuses.

Jobs are suspended, so that nothing runs.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml

from embertide.cli import main
from embertide.submit.cluster import Cluster
from embertide.submit.create import create
from embertide.submit.firing import Firing
from embertide.submit.policy import Policy
from embertide.submit.template import job_of
from tests.support.cluster.jobs import Inputs, Jobs

pytestmark = pytest.mark.cluster

Submit = Callable[..., tuple[int, str]]


@pytest.fixture
def submit(
    tiny: Inputs,
    jobs: Jobs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Submit:
    """Run the command on a template with the name ``products``; its exit code and output."""
    monkeypatch.setenv("KUBECONFIG", str(jobs.cluster.kubeconfig))
    template = tmp_path / "job.yaml"

    def run(*options: str, **metadata: Any) -> tuple[int, str]:
        job = tiny.job("products", f"{jobs.root}/out/{{date}}", suspend=True)
        job["metadata"] |= metadata
        template.write_text(yaml.safe_dump(job))
        with pytest.raises(SystemExit) as left:
            main(["submit", str(template), "-n", jobs.namespace, *options])
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out + err

    return run


def test_policies(submit: Submit, jobs: Jobs) -> None:
    first, second, third = (f"products-20261122-0{hour}00" for hour in (2, 3, 4))
    one, two, three = (f"--at=2026-11-22T0{hour}:00Z" for hour in (2, 3, 4))
    assert submit(one, "--policy=Forbid") == (0, f"{first} created\n")
    jobs.await_(first, lambda status: status.get("phase") == "Suspended")

    again = f"{first} exists (Suspended): this firing was submitted before\n"
    assert submit(one, "--policy=Forbid") == (0, again)
    assert submit(one, "--policy=Replace") == (0, again)
    skipped = f"{second} skipped: {first} is not finished (Suspended; policy Forbid)\n"
    assert submit(two, "--policy=Forbid") == (0, skipped)
    assert list(jobs.statuses()) == [first]

    replaced = f"{second} created, which replaces {first}\n"
    assert submit(two, "--policy=Replace") == (0, replaced)
    jobs.cluster.wait_for(lambda: list(jobs.statuses()) == [second], 30, "the first is gone")
    code, late = submit(one, "--policy=Replace")
    assert (code, late.partition(": ")[2].partition(" (")[0]) == (
        0,
        f"a later firing was first: {second}",
    )

    code, out = submit(three, "--json")
    assert code == 0
    assert json.loads(out)["event"] == "created"
    assert list(jobs.statuses()) == [second, third]


@contextmanager
def waiting(jobs: Jobs, folder: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    """``submit --wait`` for a job that exists, once it has said what it waits for."""
    command = [sys.executable, "-m", "embertide", "submit", str(folder / "job.yaml"), "--wait"]
    options = ["-n", jobs.namespace, "--at=2026-11-22T02:00Z"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen([*command, *options], text=True, **pipes)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith(f"{name} exists")
        assert process.stdout.readline().startswith(f"{name}: ")
        yield process
    finally:
        process.kill()
        process.communicate()


def test_waiting_ends_when_the_job_is_deleted(submit: Submit, jobs: Jobs, tmp_path: Path) -> None:
    name = "products-20261122-0200"
    assert submit("--at=2026-11-22T02:00Z")[0] == 0
    with waiting(jobs, tmp_path, name) as process:
        jobs.kubectl("delete", "ej", name)
        assert process.wait(30) == 10
        assert process.stdout is not None
        assert f"{name} was deleted before it ended" in process.stdout.read()


def test_a_signal_ends_waiting_and_not_the_job(submit: Submit, jobs: Jobs, tmp_path: Path) -> None:
    name = "products-20261122-0200"
    assert submit("--at=2026-11-22T02:00Z")[0] == 0
    with waiting(jobs, tmp_path, name) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
    assert list(jobs.statuses()) == [name]


def test_of_pods_that_submit_at_once_one_creates(
    submit: Submit, jobs: Jobs, tmp_path: Path
) -> None:
    submit("--at=now", "--dry-run")
    firing = Firing.at(datetime(2026, 11, 22, 2, tzinfo=UTC), ZoneInfo("UTC"))
    job, at_once = job_of(tmp_path / "job.yaml", firing), Barrier(4)

    def attempt(_number: int) -> str:
        cluster = Cluster.connect(jobs.namespace)
        at_once.wait()
        return create(cluster, job, firing, Policy.FORBID).event

    with ThreadPoolExecutor(4) as pods:
        events = sorted(pods.map(attempt, range(4)))
    assert events == ["created", "exists", "exists", "exists"]
    assert list(jobs.statuses()) == ["products-20261122-0200"]


def test_a_name_of_another_schedule(submit: Submit, jobs: Jobs) -> None:
    assert submit("--at=2026-11-22T02:00Z")[0] == 0
    name = "products-20261122-0200"
    jobs.kubectl("label", "ej", name, "embertide.dev/schedule=goods", "--overwrite")
    code, out = submit("--at=2026-11-22T02:00Z")
    assert code == 9
    assert f"{name} exists in namespace {jobs.namespace} and belongs to schedule 'goods'" in out


def test_what_the_api_server_refuses(submit: Submit, jobs: Jobs, tmp_path: Path) -> None:
    code, out = submit("--at=now", labels={"team": "a b"})
    assert code == 2
    assert "the API server says that the job has 1 problem:" in out
    assert "metadata.labels: Invalid value" in out
    code, out = submit("--at=now", "--namespace=nowhere")
    assert code == 9
    assert 'namespaces "nowhere" not found' in out


def test_without_rights_and_without_an_answer(
    submit: Submit, jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = yaml.safe_load(jobs.cluster.kubeconfig.read_text())
    token = jobs.kubectl("create", "token", "default").strip()
    config["users"][0]["user"] = {"token": token}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    code, out = submit("--at=now")
    assert code == 9
    assert 'cannot get resource "embeddingjobs"' in out
    assert "docs/schedules.md lists the rights that submit needs" in out

    config["users"][0]["user"] = {"token": "wrong"}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    assert "the credentials are not valid" in submit("--at=now")[1]

    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    code, out = submit("--at=now")
    assert code == 9
    assert "no answer: " in out
