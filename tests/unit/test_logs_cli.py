"""``embertide logs``: what it shows of a job that failed, runs, or is not there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from embertide.spec.naming import LABEL_JOB, PLURAL
from tests.support.api_server import ApiServer, api_server
from tests.support.operator_world import raw_job

Cli = Callable[..., tuple[int, str, str]]
FAILED = {
    "phase": "Failed",
    "lastFailure": {"reason": "OutOfMemory", "message": "no room", "worker": "products-1"},
    "failureLog": "line 1\nline 2\nline 3",
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """An API server, and the kubeconfig of a user whose namespace is ``shop``."""
    with api_server() as found:
        cluster = {"name": "it", "cluster": {"server": f"http://127.0.0.1:{found.port}"}}
        context = {"name": "it", "context": {"cluster": "it", "user": "me", "namespace": "shop"}}
        config: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": "it"}
        config |= {
            "clusters": [cluster],
            "contexts": [context],
            "users": [{"name": "me", "user": {}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield found


def put_job(server: ApiServer, **status: Any) -> None:
    server.put(PLURAL, raw_job() | {"status": status})


def put_pod(server: ApiServer, name: str, state: str, log: str | None = None) -> None:
    labels = {LABEL_JOB: "products"}
    status = {"phase": "Running", "containerStatuses": [{"name": "worker", "state": {state: {}}}]}
    server.put("pods", {
        "metadata": {"name": name, "namespace": "shop", "labels": labels}, "status": status,
    })  # fmt: skip
    if log is not None:
        server.logs[name] = log


def test_a_failed_job_without_pods(server: ApiServer, cli: Cli) -> None:
    put_job(server, **FAILED)
    code, out, err = cli("logs", "products")
    assert (code, err) == (0, "")
    assert out == "==> products-1: failed: OutOfMemory <==\nline 1\nline 2\nline 3\n"
    assert cli("logs", "products", "--tail", "1")[1].splitlines()[1:] == ["line 3"]


def test_a_job_that_runs_again_after_a_failure(server: ApiServer, cli: Cli) -> None:
    put_job(server, **FAILED | {"phase": "Running"})
    put_pod(server, "products-1", "running", "c\nd\n")
    put_pod(server, "products-0", "running", "a\nb\n")
    put_pod(server, "products-2", "waiting")
    put_pod(server, "products-3", "running")  # gone before it is asked
    _, out, _ = cli("logs", "products", "-n", "shop", "--tail", "1")
    assert out.splitlines() == [
        "==> products-1: failed: OutOfMemory <==", "line 3", "",
        "==> products-0: Running <==", "b", "",
        "==> products-1: Running <==", "d",
    ]  # fmt: skip
    _, out, _ = cli("logs", "products", "--json")
    first, *rest = map(json.loads, out.splitlines())
    assert first == {
        "pod": "products-1", "state": "failed: OutOfMemory",
        "lines": ["line 1", "line 2", "line 3"],
    }  # fmt: skip
    assert [log["lines"] for log in rest] == [["a", "b"], ["c", "d"]]


def test_a_job_without_any_log(server: ApiServer, cli: Cli) -> None:
    put_job(server, phase="Succeeded")
    code, out, err = cli("logs", "products")
    assert (code, out) == (0, "")
    assert err == "products is Succeeded: no pod has a log, and none failed with one\n"


def test_a_job_that_does_not_exist(server: ApiServer, cli: Cli) -> None:
    code, out, err = cli("logs", "prodcts")
    assert (code, out) == (9, "")
    assert "there is no EmbeddingJob prodcts in namespace shop" in err


def test_a_right_that_is_missing(server: ApiServer, cli: Cli) -> None:
    put_job(server, **FAILED)
    server.refuse["list", "pods"] = 403
    code, _, err = cli("logs", "products")
    assert code == 9
    words = " ".join(err.split())
    assert "cannot list pods in namespace shop: refused; embertide logs needs those to" in words
