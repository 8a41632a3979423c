"""kopf's part: watch events become keys in the work queue.

Only a raw event handler is used, so kopf writes nothing: no finalizers that would block deletion
once the operator is uninstalled, and no annotations that grow with the spec. The objects themselves
come from the cache's own watches (``api/cache.py``), which the API server restricts to a job's
objects by their label; kopf would receive every pod of the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import kopf

from embertide.spec.naming import API_VERSION_NAME, GROUP, PLURAL
from embertide_operator.runtime.controller import Controller

log = logging.getLogger("embertide")


def register(registry: kopf.OperatorRegistry, controller: Controller) -> None:
    """Register handlers that run a controller and queue the jobs of watch events."""
    background: set[asyncio.Task[None]] = set()

    def ended(task: asyncio.Task[None]) -> None:
        """Without its controller the process would live on and do nothing: it ends at once."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("the controller ended, so the operator ends: %r", error, exc_info=error)
            logging.shutdown()
            os._exit(1)

    @kopf.on.login(registry=registry)
    def log_in(**context: Any) -> kopf.ConnectionInfo | None:
        in_cluster = kopf.login_with_service_account(**context)
        return in_cluster or kopf.login_with_kubeconfig(**context)

    @kopf.on.startup(registry=registry)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        # The resources are known; discovery would need permissions that nothing else needs.
        settings.scanning.disabled = True
        task = asyncio.create_task(controller.run(), name="controller")
        task.add_done_callback(ended)
        background.add(task)

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:
        await controller.stop()

    @kopf.on.event(GROUP, API_VERSION_NAME, PLURAL, registry=registry)
    async def job_changed(namespace: str | None, name: str, **_: Any) -> None:
        assert namespace is not None
        controller.wake([(namespace, name)])
