"""Schedules: the example without Helm, Jobs of the batch API that end, and one that never fires."""

from __future__ import annotations

from typing import Any

import yaml

from embertide.spec import naming
from tests.support.cluster.jobs import Jobs, Manifest
from tests.support.paths import ROOT

IDLE = "idle"


def show_idle_schedule(jobs: Jobs) -> None:
    """A CronJob for the next new year, once the operator shows it."""
    labels = {naming.LABEL_SCHEDULE: IDLE}
    container = {"name": "submit", "image": "none"}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    template = {"metadata": {"labels": labels}, "spec": {"template": pod}}
    annotations = {"embertide.dev/output": f"{jobs.root}/idle", "embertide.dev/max-age": "26h"}
    meta = {"name": IDLE, "labels": labels, "annotations": annotations}
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": template}
    jobs.apply({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": spec})

    def shown() -> bool:
        found = jobs.cluster.get("-n", jobs.namespace, "embeddingschedules")["items"]
        return any(item.get("status") for item in found)

    jobs.cluster.wait_for(shown, 60, "the schedule is shown")


def create_example(jobs: Jobs, spec: Manifest, **fields: Any) -> None:
    """The objects of examples/schedule.yaml, for jobs with another ``spec``.

    Args:
        fields: of the CronJob's spec, and ``annotations`` of it.
    """
    text = (ROOT / "examples/schedule.yaml").read_text()
    text = text.replace("ghcr.io/embertide/operator:0.1.0", jobs.cluster.operator_image)
    objects = {item["kind"]: item for item in yaml.safe_load_all(text)}
    manifest = yaml.safe_load(objects["ConfigMap"]["data"]["job.yaml"]) | {"spec": spec}
    objects["ConfigMap"]["data"]["job.yaml"] = yaml.safe_dump(manifest)
    objects["CronJob"]["metadata"]["annotations"] |= fields.pop("annotations", {})
    objects["CronJob"]["spec"] |= fields
    jobs.apply(*objects.values())


def ended(jobs: Jobs, name: str) -> Manifest:
    """A Job of the batch API when it has succeeded or failed."""

    def look() -> Manifest | None:
        path = f"/apis/batch/v1/namespaces/{jobs.namespace}/jobs/{name}"
        found: Manifest = jobs.cluster.read(path)
        return found if {"Complete", "Failed"} & true_conditions(found).keys() else None

    found = jobs.cluster.wait_for(look, 120, f"Job {name} ends")
    assert found is not None
    return found


def true_conditions(job: Manifest) -> dict[str, str]:
    """The reason of each condition that is true."""
    found = job["status"].get("conditions", [])
    return {c["type"]: c.get("reason", "") for c in found if c["status"] == "True"}
