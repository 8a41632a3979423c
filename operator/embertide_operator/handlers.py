"""kopf's part: watch events become keys in the work queue.

Only raw event handlers are used, so kopf writes nothing: no finalizers that would block deletion
once the operator is uninstalled, and no annotations that grow with the spec. Pods are not watched,
since kopf would receive every pod of the cluster. A StatefulSet changes when one of its pods
becomes ready or unready, and running jobs are reconciled every 2 seconds anyway.
"""

from __future__ import annotations

import asyncio
from typing import Any

import kopf

from embertide.spec.naming import API_VERSION_NAME, GROUP, LABEL_JOB, PLURAL
from embertide_operator.controller import Controller


def register(registry: kopf.OperatorRegistry, controller: Controller) -> None:
    """Register handlers that run a controller and queue the jobs of watch events."""
    background: set[asyncio.Task[None]] = set()

    @kopf.on.login(registry=registry)
    def log_in(**context: Any) -> kopf.ConnectionInfo | None:
        in_cluster = kopf.login_with_service_account(**context)
        return in_cluster or kopf.login_with_kubeconfig(**context)

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        # The resources are known; discovery would need permissions that nothing else needs.
        settings.scanning.disabled = True
        background.add(asyncio.create_task(controller.run(), name="controller"))

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:
        for task in background:
            task.cancel()

    @kopf.on.event(GROUP, API_VERSION_NAME, PLURAL, registry=registry)
    async def job_changed(namespace: str | None, name: str, **_: Any) -> None:
        assert namespace is not None
        await controller.queue.add((namespace, name))

    @kopf.on.event(
        "apps", "v1", "statefulsets", labels={LABEL_JOB: kopf.PRESENT}, registry=registry
    )
    async def child_changed(namespace: str | None, labels: Any, **_: Any) -> None:
        assert namespace is not None
        await controller.queue.add((namespace, labels[LABEL_JOB]))
