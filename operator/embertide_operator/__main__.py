"""``python -m embertide_operator``: the operator's container starts here."""

from __future__ import annotations

import logging
import os
import sys

import kopf
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from urllib3 import Retry

from embertide_operator import logs
from embertide_operator.controller import Controller
from embertide_operator.handlers import register
from embertide_operator.health import serve
from embertide_operator.kubernetes_api import KubernetesApi
from embertide_operator.metrics import Metrics
from embertide_operator.rate_limit import RateLimit
from embertide_operator.settings import Settings

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
    server = serve(controller, settings.port)
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
    server.shutdown()
    return 0


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
