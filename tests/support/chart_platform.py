"""Values of the chart by which a platform sets defaults for all jobs."""

from __future__ import annotations

from typing import Any

PLATFORM: dict[str, Any] = {
    "worker": {
        "podTemplate": {
            "metadata": {"annotations": {"mesh.example/inject": "false"}},
            "spec": {
                "imagePullSecrets": [{"name": "registry"}],
                "tolerations": [{"key": "batch", "operator": "Exists"}],
                "containers": [{"name": "worker", "resources": {"limits": {"cpu": 2}}}],
            },
        },
        "namespaces": {"shop": {"podTemplate": {"spec": {"priorityClassName": "shop"}}}},
        "planner": {"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}},
    },
    "submit": {
        "resources": {"limits": {"cpu": "1", "memory": "300Mi"}},
        "priorityClassName": "high",
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"mesh.example/inject": "false"},
        "podLabels": {"team": "ml"},
    },
}
