"""Many pods are stopped by one request, of a job that ends and of one that is deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from embertide_operator.api.cache import Cache
from embertide_operator.runtime.deleted_jobs import clear_deleted_job
from tests.support.api_server import ApiServer, api_server
from tests.support.live_controller import (
    JOBS,
    NAMESPACE,
    job,
    live,
    make_controller,
    run_pods,
    started,
    wait_for,
)

MANY: dict[str, Any] = {"grid": {"graph": 40}, "resources": {"limits": {"memory": "1Gi"}}}
COLLECTION = ("deletecollection", "pods")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as started_server:
        yield started_server


def owned_pods(server: ApiServer, count: int) -> None:
    """The pods of job ``a``, owned by its StatefulSet."""
    run_pods(server, "a", count)
    for rank in range(count):
        pod = server.find("pods", NAMESPACE, f"a-{rank}")
        assert pod is not None
        statefulset = server.find("statefulsets", NAMESPACE, "a")
        assert statefulset is not None
        owner = {"kind": "StatefulSet", "name": "a", "uid": statefulset["metadata"]["uid"]}
        server.put("pods", {**pod, "metadata": pod["metadata"] | {"ownerReferences": [owner]}})


def test_the_pods_of_a_deleted_job_go_at_once(server: ApiServer) -> None:
    server.put(JOBS, job("a", workers=MANY))
    controller = make_controller(server)
    with live(controller):
        wait_for(lambda: started(server, "a"))
        owned_pods(server, 40)
        wait_for(lambda: len(controller.cache.pods(NAMESPACE, "a")) == 40)
        server.remove(JOBS, NAMESPACE, "a")
        wait_for(lambda: not server.listed("pods", NAMESPACE, "")[0], what="deleting the pods")
    assert server.requests[COLLECTION] == 1
    statefulset = server.find("statefulsets", NAMESPACE, "a")
    assert statefulset is not None
    assert statefulset["spec"]["replicas"] == 0, "it makes no new ones"


def test_few_pods_are_left_to_the_garbage_collector(server: ApiServer) -> None:
    assert clear(server, pods=20) == 20


def test_pods_that_outlive_their_job_stay(server: ApiServer) -> None:
    """--cascade=orphan: nothing belongs to the job any more."""
    assert clear(server, pods=40, owners=[]) == 40


def test_pods_of_another_operators_job_stay(server: ApiServer) -> None:
    assert clear(server, pods=40, operator="ml/embertide") == 40
    assert clear(server, pods=40) == 0


def clear(
    server: ApiServer, pods: int, owners: list[dict[str, Any]] | None = None, operator: str = "x/y"
) -> int:
    """How many pods a deleted job still has after its operator ``x/y`` has looked at them."""
    owner = {"kind": "EmbeddingJob", "name": "a", "uid": "uid-a"}
    meta = {"namespace": NAMESPACE, "name": "a", "labels": {"embertide.dev/job": "a"}}
    meta["annotations"] = {"embertide.dev/operator": operator}
    meta["ownerReferences"] = [owner] if owners is None else owners
    server.put("statefulsets", {"metadata": meta, "spec": {"replicas": pods}})
    server.put(JOBS, job("a") | {"status": {"attempt": 1}})
    owned_pods(server, pods)
    server.remove(JOBS, NAMESPACE, "a")
    api = server.api()
    cache = Cache(api, (), ("StatefulSet",), lambda *_: None)
    for pod in server.listed("pods", NAMESPACE, "")[0]:
        cache.written({"apiVersion": "v1", "kind": "Pod"} | pod)
    clear_deleted_job(api, cache, (NAMESPACE, "a"), "x/y")
    return len(server.listed("pods", NAMESPACE, "")[0])
