"""A schedule that never fires, for tests of what is shown of schedules."""

from __future__ import annotations

from embertide.spec import naming
from tests.support.cluster.jobs import Jobs

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
