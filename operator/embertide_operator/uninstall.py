"""``python -m embertide_operator.uninstall``: what the chart runs after ``helm uninstall``.

Helm deletes what it has installed. The operator has written more: its Lease, and its heartbeat
in every namespace with jobs, where no owner could be named that would take it along. It cannot
remove them itself as it ends: it does not know whether it ends for good, and has no rights by then.

What applies the chart's templates with its hooks (``helm template | kubectl apply``) runs this
beside the operator. While the operator's Deployment is there nothing is removed.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys

from kubernetes import config
from kubernetes.client import ApiClient

from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import Object
from embertide_operator.api.transport import ApiError
from embertide_operator.config.settings import Settings
from embertide_operator.job.ownership import CONFIG_MAP, data_key
from embertide_operator.runtime import logs

log = logging.getLogger("embertide")


def main(arguments: list[str] | None = None) -> int:
    """Remove it all, with the account of this pod.

    Returns:
        The exit code: 2 for invalid settings, 1 where something could not be removed.
    """
    parser = argparse.ArgumentParser(prog="embertide_operator.uninstall", description=__doc__)
    parser.add_argument("--test-namespace", required=True, help="where `helm test` makes its job")
    parser.add_argument("--release", required=True, help="the release's name, of that job's label")
    options = parser.parse_args(arguments)
    try:
        settings = Settings.from_environment(os.environ)
        config.load_incluster_config()
    except (ValueError, config.ConfigException) as error:
        print(f"embertide_operator.uninstall: {error}", file=sys.stderr)
        return 2
    logs.configure(settings)
    api = KubernetesApi(ApiClient())
    try:
        if is_installed(api, settings):
            log.warning(
                "the operator is installed (Deployment %s/%s), so nothing is removed; this Job is a"
                " hook of helm uninstall: render the chart with helm template --no-hooks",
                settings.own_namespace,
                settings.own_name,
            )
            return 0
        remove_signs(api, settings)
        remove_lease(api, settings)
        remove_test_jobs(api, options.test_namespace, options.release)
    except ApiError as error:
        log.error("%s", error)
        return 1
    return 0


def is_installed(api: KubernetesApi, settings: Settings) -> bool:
    """Whether the operator's Deployment is there and is not being deleted."""
    deployment = api.get("Deployment", settings.own_namespace, settings.own_name)
    return deployment is not None and "deletionTimestamp" not in deployment["metadata"]


def remove_signs(api: KubernetesApi, settings: Settings) -> None:
    """The operator's heartbeat in all namespaces; the ConfigMap too, if no other has one there.

    An operator whose sign goes with the ConfigMap at that moment creates it again.
    """
    for item in _sign_maps(api, settings.namespaces):
        namespace = item["metadata"]["namespace"]
        key = data_key(settings.identity)
        if key not in (item.get("data") or {}):
            continue
        item = api.patch_data(namespace, CONFIG_MAP, {key: None})
        if not item.get("data"):
            _delete(api, "ConfigMap", item)


def _sign_maps(api: KubernetesApi, namespaces: tuple[str, ...]) -> list[Object]:
    """The ConfigMaps with heartbeats, of these namespaces; of all if none are named."""
    if not namespaces:
        return api.of_name("ConfigMap", CONFIG_MAP)
    items = (api.get("ConfigMap", namespace, CONFIG_MAP) for namespace in namespaces)
    return [item for item in items if item is not None]


def remove_lease(api: KubernetesApi, settings: Settings) -> None:
    """The Lease by which replicas agreed who leads."""
    lease = api.get("Lease", settings.own_namespace, settings.own_name)
    if lease is not None:
        _delete(api, "Lease", lease)


def remove_test_jobs(api: KubernetesApi, namespace: str, release: str) -> None:
    """The jobs of ``helm test``, whose time to live needs an operator."""
    labels = f"app.kubernetes.io/instance={release},app.kubernetes.io/component=test"
    try:
        jobs = api.read_all("EmbeddingJob", namespace, labels=labels)[0]
    except ApiError as error:
        if error.code == 404:  # the definition went with the release
            return
        raise
    for job in jobs:
        _delete(api, "EmbeddingJob", job)


def _delete(api: KubernetesApi, kind: str, item: Object) -> None:
    meta = item["metadata"]
    api.delete(kind, meta["namespace"], meta["name"], uid=meta["uid"], force=False)
    log.info("%s %s/%s is deleted", kind, meta["namespace"], meta["name"])


if __name__ == "__main__":
    sys.exit(main())
