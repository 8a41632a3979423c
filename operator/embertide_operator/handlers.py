"""kopf's part: what is heard from the API becomes keys in the queue.

Only raw events are handled, so kopf writes nothing: no finalizers that would strand objects
when the operator is gone, and no annotations that grow with the spec. Pods are not watched: kopf
would be sent every pod of the cluster, ours or not. A StatefulSet tells when one of its pods
becomes ready or stops being so, and jobs under way are looked at every other second anyway.
"""

from __future__ import annotations

import asyncio
from typing import Any

import kopf

from embertide.spec.naming import API_VERSION_NAME, GROUP, LABEL_JOB, PLURAL
from embertide_operator.controller import Controller


def register(registry: kopf.OperatorRegistry, controller: Controller) -> None:
    """Connect a controller with kopf's streams."""
    background: set[asyncio.Task[None]] = set()

    @kopf.on.login(registry=registry)
    def log_in(**context: Any) -> kopf.ConnectionInfo | None:
        inside = kopf.login_with_service_account(**context)
        return inside or kopf.login_with_kubeconfig(**context)

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        # Our resources are known; looking for others would need rights that nothing else does.
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
