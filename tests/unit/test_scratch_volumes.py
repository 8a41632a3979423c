"""The scratch volume of a worker on Kubernetes: its size, its kind, and where it is mounted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from embertide_operator.pods.children import children, needs_plan, planner
from tests.support.job_children import ATTEMPT, job, pod_of, workers
from tests.support.operator_world import SETTINGS

SIZE = 5 << 30
SPILLED = replace(ATTEMPT, scratch=SIZE)
CLAIM = {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}


def volume_in(pod: dict[str, Any]) -> dict[str, Any]:
    """The scratch volume of a pod."""
    (volume,) = (item for item in pod["spec"]["volumes"] if item["name"] == "scratch")
    return volume


def worker_in(pod: dict[str, Any]) -> dict[str, Any]:
    """The worker's container of a pod."""
    (container,) = (item for item in pod["spec"]["containers"] if item["name"] == "worker")
    return container


def mounts_of(**fields: Any) -> list[tuple[str, str]]:
    """Volume and path of each mount, but for the job's file."""
    mounts = worker_in(pod_of(job(**workers(**fields)), SPILLED))["volumeMounts"]
    return [(item["name"], item["mountPath"]) for item in mounts if item["name"] != "job"]


def requested(**fields: Any) -> Any:
    """The room on the node that a worker's container requests."""
    pod = pod_of(job(**workers(**fields)), SPILLED)
    return worker_in(pod)["resources"].get("requests", {}).get("ephemeral-storage")


def test_tensors_on_disk_have_as_much_of_the_nodes_disk_as_the_plan_needs() -> None:
    pod = pod_of(job(**workers(memory="1Gi")), SPILLED)
    assert volume_in(pod) == {"name": "scratch", "emptyDir": {"sizeLimit": str(SIZE)}}
    resources = worker_in(pod)["resources"]
    assert resources["requests"] == {"ephemeral-storage": str(SIZE)}
    assert resources["limits"] == {"cpu": 2, "memory": "1Gi"}


def test_without_tensors_on_disk_nothing_is_asked_for() -> None:
    pod = pod_of(job(**workers(scratchStorageClass="fast")), ATTEMPT)
    assert volume_in(pod) == {"name": "scratch", "emptyDir": {}}
    assert "ephemeral-storage" not in str(worker_in(pod)["resources"])


@pytest.mark.parametrize(("of_chart", "of_job"), [("fast", None), ("slow", "fast")])
def test_a_storage_class_gives_each_pod_a_claim_that_goes_with_it(
    of_chart: str, of_job: str | None
) -> None:
    settings = replace(SETTINGS, scratch_storage_class=of_chart)
    fields = {} if of_job is None else {"scratchStorageClass": of_job}
    pod = children(job(**workers(**fields)), SPILLED, settings)[-1]["spec"]["template"]
    claim = volume_in(pod)["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert claim == {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": str(SIZE)}},
    }
    assert "ephemeral-storage" not in str(worker_in(pod)["resources"])


def test_the_volume_is_mounted_at_the_folder_of_the_job() -> None:
    ours = ("scratch", "/scratch")
    assert mounts_of() == [ours]
    assert mounts_of(scratch="/mnt/nvme") == [ours, ("scratch", "/mnt/nvme")]
    assert mounts_of(scratch="/scratch/tensors") == [ours], "it is on the volume already"
    assert mounts_of(scratch="/") == [ours], "the root is the image's"


def test_a_mount_of_the_job_at_its_folder_stays() -> None:
    disk = {"name": "disk", "mountPath": "/mnt"}
    template = {
        "spec": {
            "volumes": [{"name": "disk", "ephemeral": CLAIM}],
            "containers": [{"name": "worker", "volumeMounts": [disk]}],
        }
    }
    assert mounts_of(scratch="/mnt/nvme", podTemplate=template) == [
        ("scratch", "/scratch"),
        ("disk", "/mnt"),
    ]


def test_what_the_job_sets_itself_stays() -> None:
    template = {"spec": {"volumes": [{"name": "scratch", "ephemeral": CLAIM}]}}
    pod = pod_of(job(**workers(podTemplate=template)), SPILLED)
    assert volume_in(pod) == {"name": "scratch", "ephemeral": CLAIM}
    assert requested(podTemplate=template) is None
    limits = {"limits": {"memory": "1Gi", "ephemeral-storage": "9Gi"}}
    assert requested(resources=limits) is None, "the limit is the request then"
    requests = {"limits": {"memory": "1Gi"}, "requests": {"ephemeral-storage": "7Gi"}}
    assert requested(resources=requests) == "7Gi"


def test_a_job_with_a_memory_for_its_workers_is_planned() -> None:
    grid = {"graph": 1, "feature": 1}
    assert needs_plan(job(**workers(grid=grid, memory="1Gi")), SETTINGS)
    assert not needs_plan(job(**workers(grid=grid)), SETTINGS)


def test_the_planner_knows_the_limit_of_the_workers() -> None:
    def limit(**spec: Any) -> list[Any]:
        (container,) = planner(job(**spec), ATTEMPT, SETTINGS)["spec"]["containers"]
        return [e["value"] for e in container["env"] if e["name"] == "EMBERTIDE_MEMORY_LIMIT"]

    assert limit(**workers()) == [str(1 << 30)]
    assert limit(workers={"resources": {"limits": {"cpu": "1"}}}) == []
    assert limit(workers={"resources": {"requests": {"memory": "1Gi"}}}) == []
