"""Jobs and pods as the API would show them, for tests of the operator's decisions."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from embertide.spec.reports import Ending, OutputReport, ProgressReport, WorkerStatus
from embertide_operator.config.settings import Settings
from embertide_operator.decide.decision import Decision
from embertide_operator.decide.reconcile import decide
from embertide_operator.job.observe import Observed

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
SETTINGS = Settings(image="registry.example/embertide-worker:1")
UID = "0f9c6f0e-1111-2222-3333-444455556666"


def raw_job(**spec: Any) -> dict[str, Any]:
    """An EmbeddingJob on a 2x1 grid with memory given, so that nothing needs planning."""
    full: dict[str, Any] = {
        "input": {
            "edges": [{"uri": "s3://shop/edges/", "format": "parquet"}],
            "nodes": [
                {
                    "ids": "int64",
                    "features": {
                        "uri": "s3://shop/features/",
                        "format": "parquet",
                        "idColumn": "id",
                        "vectorColumn": "x",
                    },
                }
            ],
        },
        "model": {"uri": "s3://shop/model/"},
        "output": {"uri": "s3://shop/embeddings"},
        "workers": {
            "grid": {"graph": 2, "feature": 1},
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        },
    }
    return {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {
            "name": "products",
            "namespace": "shop",
            "uid": UID,
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-21T11:59:00Z",
        },
        "spec": full | spec,
    }


class World:
    """A job that is reconciled again and again, with what the cluster would make of it."""

    def __init__(self, **spec: Any) -> None:
        self.job = raw_job(**spec)
        self.seen = Observed(self.job)
        self.settings = SETTINGS
        self.now = NOW
        self.events: list[str] = []
        self._created = 0

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job["status"]
        return found

    def reconcile(self, seconds: float = 0.0, **seen: Any) -> Decision:
        """One reconciliation, some seconds later: its status is written, its children exist."""
        self.now += timedelta(seconds=seconds)
        self.seen = replace(self.seen, job=copy.deepcopy(self.job), **seen)
        decision = decide(self.seen, self.settings, self.now)
        self.job["status"] = decision.draft.fields
        self.events += [event.reason for event in decision.draft.events]
        children = dict(self.seen.children)
        for child in decision.apply:
            found = children.get(child["kind"])
            self._created += found is None
            uid = found["metadata"]["uid"] if found else f"child-{self._created}"
            children[child["kind"]] = copy.deepcopy(child)
            children[child["kind"]]["metadata"]["uid"] = uid
        if decision.scale_to_zero is not None:
            children["StatefulSet"]["spec"]["replicas"] = 0
        self.seen = replace(self.seen, children=children)
        return decision

    def pods(self, *states: dict[str, Any]) -> list[dict[str, Any]]:
        """The workers' pods of this attempt, as :func:`running` or :func:`ended` describe them."""
        return [self.pod(rank, state) for rank, state in enumerate(states)]

    def pod(self, rank: int, state: dict[str, Any]) -> dict[str, Any]:
        ready = "True" if "running" in state.get("state", {}) else "False"
        owner = self.seen.children.get("StatefulSet")
        owners = [{"kind": "StatefulSet", "uid": owner["metadata"]["uid"]}] if owner else []
        return {
            "metadata": {
                "name": f"products-{rank}",
                "uid": f"pod-{rank}",
                "ownerReferences": owners,
                "labels": {
                    "embertide.dev/job-uid": UID,
                    "embertide.dev/role": "worker",
                    "embertide.dev/attempt": str(self.status["attempt"]),
                },
            },
            "status": {
                "phase": "Running",
                "podIP": f"10.0.0.{rank}",
                "conditions": [{"type": "Ready", "status": ready}],
                "containerStatuses": [{"name": "worker", **state}],
            },
        }

    def running(self) -> dict[str, Any]:
        return {"state": {"running": {}}}

    def ended(self, ending: Ending | None = None, **more: Any) -> dict[str, Any]:
        at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        end = {"exitCode": 8, "reason": "Error", "finishedAt": at}
        if ending is not None:
            end |= {"exitCode": ending.exit_code, "message": ending.to_text()}
        return {"state": {"running": {}}, "lastState": {"terminated": end | more}}

    def published(
        self, *, again: bool = True, output: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Rank 0's container after it has published and ended; ``again``: it was started again."""
        message = self.output().model_copy(update=output or {}).to_text()
        end = {"terminated": {"exitCode": 0, "reason": "Completed", "message": message}}
        return {"state": {"running": {}}, "lastState": end} if again else {"state": end}

    def waiting(self, reason: str, message: str = "") -> dict[str, Any]:
        return {"state": {"waiting": {"reason": reason, "message": message}}}

    def output(self) -> OutputReport:
        """The version of this attempt."""
        version = self.status["versions"][-1]
        uri = f"s3://shop/embeddings/versions/{version}"
        return OutputReport(
            version=version, uri=uri, rows=10, dim=4, manifest_digest="ab12", job_uid=UID,
            attempt=self.status["attempt"],
        )  # fmt: skip

    def report(
        self,
        state: Any = "running",
        percent: int = 40,
        at: datetime | None = None,
        stage: str = "infer",
    ) -> Any:
        """Rank 0's answer; ``at`` is the time by its own clock."""
        moment = (at or self.now).strftime("%Y-%m-%dT%H:%M:%SZ")
        return WorkerStatus(
            job_uid=UID,
            attempt=self.status["attempt"],
            rank=0,
            state=state,
            progress=ProgressReport(
                stage=stage, layer=1, layers=2, percent=percent, last_update_time=moment
            ),
            output=self.output() if state == "succeeded" else None,
        )

    def condition(self, kind: str) -> tuple[str, str]:
        """(status, reason) of a condition."""
        found = next(c for c in self.status["conditions"] if c["type"] == kind)
        return found["status"], found["reason"]
