"""Changes to ``BASE`` once a job is accepted, and once it has finished."""

from __future__ import annotations

from tests.support.crd_cases import EDGE, NODE, Case

_FROZEN = "cannot change once the job is accepted; create a job with another name"

FROZEN = (
    Case("other edges", {f"{EDGE}.uri": "s3://shop/edges/new"}, f"spec.input {_FROZEN}"),
    Case("other features", {f"{NODE}.features.vectorColumn": "y"}, f"spec.input {_FROZEN}"),
    Case("another model", {"spec.model.uri": "s3://shop/models/gcn-8/"}, f"spec.model {_FROZEN}"),
    Case("another output", {"spec.output.keepVersions": 2}, f"spec.output {_FROZEN}"),
    Case("some nodes", {"spec.inference.targets": {"ids": ["a"]}}, f"inference.targets {_FROZEN}"),
    Case(
        "another controller",
        {"spec.managedBy": "kueue.x-k8s.io/multikueue"},
        "spec.managedBy cannot change; create a job with another name",
    ),
)
"""Changes to ``BASE`` that are refused once it is accepted."""

THAWED = (
    Case("suspended", {"spec.suspend": True}),
    Case("of another operator", {"spec.operatorClass": "staging"}),
    Case("more workers", {"spec.workers.grid": {"graph": 8}}),
    Case("more patience", {"spec.backoffLimit": 9, "spec.activeDeadlineSeconds": 60}),
)
"""Changes to ``BASE`` that are taken at any time."""


_FINISHED = "cannot change once the job has finished"

DONE = (
    Case("resumed by hand", {"spec.suspend": False}, f"spec.suspend {_FINISHED}"),
    Case("another grid", {"spec.workers.grid": {"graph": 3}}, f"spec.workers {_FINISHED}"),
    Case(
        "more memory",
        {"spec.workers.resources": {"limits": {"memory": "1Gi"}}},
        f"spec.workers {_FINISHED}",
    ),
    Case(
        "a limit becomes a request",
        {"spec.workers.resources": {"requests": {"memory": "20Mi"}}},
        f"spec.workers {_FINISHED}",
    ),
    Case(
        "a pod's metadata becomes its spec",
        {"spec.workers.podTemplate": {"spec": {"labels": {"team": "ml"}}}},
        f"spec.workers {_FINISHED}",
    ),
    Case("sampled", {"spec.inference.fanout": [5]}, f"spec.inference {_FINISHED}"),
    Case("another region", {"spec.storage.region": "eu-1"}, f"spec.storage {_FINISHED}"),
    Case("more retries", {"spec.backoffLimit": 9}, f"spec.backoffLimit {_FINISHED}"),
    Case(
        "a deadline", {"spec.activeDeadlineSeconds": 9}, f"spec.activeDeadlineSeconds {_FINISHED}"
    ),
    Case(
        "other patience",
        {"spec.preRunningDeadlineSeconds": 9},
        f"spec.preRunningDeadlineSeconds {_FINISHED}",
    ),
    Case(
        "less patience",
        {"spec.progressDeadlineSeconds": 9},
        f"spec.progressDeadlineSeconds {_FINISHED}",
    ),
    Case("the same again", {"spec.storage.region": None}),
    Case("a time to live", {"spec.ttlSecondsAfterFinished": 60}),
    Case("an objective", {"spec.freshness": {"maxAge": "26h"}}),
    Case("another class", {"spec.operatorClass": "staging"}),
)
"""Changes to a suspended ``BASE`` that has finished: what would have no effect is refused."""
