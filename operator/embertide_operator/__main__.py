"""``python -m embertide_operator``: the operator's container starts here."""

from __future__ import annotations

import logging
import os
import signal
import sys

import kopf
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from urllib3 import Retry

from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.rate_limit import RateLimit
from embertide_operator.config.settings import Settings
from embertide_operator.leadership.lease import Leadership, make_leadership
from embertide_operator.metrics.operator_metrics import Metrics
from embertide_operator.runtime import logs
from embertide_operator.runtime.controller import Controller
from embertide_operator.runtime.handlers import register
from embertide_operator.runtime.health import serve

_CONNECTIONS = 64
"""Kept open to the API server, by watches and passes."""


def main(api_type: type[KubernetesApi] = KubernetesApi) -> int:
    """Run until a signal; returns the exit code: 2 for invalid settings, else 0."""
    try:
        settings = Settings.from_environment(os.environ)
        _find_cluster()
    except (ValueError, config.ConfigException) as error:
        print(f"embertide-operator: {error}", file=sys.stderr)
        return 2
    logs.configure(settings)
    metrics = Metrics()
    limit = RateLimit(settings.api_qps, settings.api_burst, metrics.waited)
    api = api_type(_client(), metrics.requested, limit)
    controller = Controller(api, settings, metrics)
    leadership = _make_leadership(settings, metrics)
    server = serve(controller, leadership, settings.port)
    try:
        if leadership.wait():
            _reconcile(controller)
    finally:
        leadership.end()
        server.shutdown()
    return 0


def _make_leadership(settings: Settings, metrics: Metrics) -> Leadership:
    """With connections of its own: a renewal waits for no other request, and is sent again."""
    configuration = Configuration.get_default_copy()
    configuration.retries = False
    own = KubernetesApi(
        ApiClient(configuration),
        on_request=metrics.requested,
        timeout_seconds=settings.renew_seconds / 2,
    )
    leadership = make_leadership(own, settings)
    metrics.watch_leadership(lambda: leadership.leads)

    def asked_to_end(*_: object) -> None:
        """Until kopf takes the signals, which it does before anything is reconciled."""
        leadership.stop_waiting()
        if leadership.leads:
            sys.exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, asked_to_end)
    return leadership


def _reconcile(controller: Controller) -> None:
    """Watch and reconcile until a signal; returns when nothing is written any more."""
    settings = controller.settings
    registry = kopf.OperatorRegistry()
    register(registry, controller)
    where = ", ".join(settings.namespaces) or "all namespaces"
    logging.getLogger("embertide").info("watching EmbeddingJobs in %s", where)
    kopf.run(
        registry=registry,
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
    )


def _client() -> ApiClient:
    """With room for all watches and passes at once, and one retry of what a connection lost."""
    configuration = Configuration.get_default_copy()
    configuration.connection_pool_maxsize = _CONNECTIONS
    configuration.retries = Retry(1, redirect=0)
    return ApiClient(configuration)


def _find_cluster() -> None:
    """By the pod's service account, or by a kubeconfig; ConfigException where there is neither."""
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()


if __name__ == "__main__":
    sys.exit(main())
