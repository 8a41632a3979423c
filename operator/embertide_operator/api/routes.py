"""Where the API server has the objects of each kind."""

from __future__ import annotations

from typing import Any

from embertide.spec import schedule_status
from embertide.spec.naming import API_VERSION_NAME, GROUP, PLURAL

Object = dict[str, Any]
"""An object of the API, as JSON has it."""

JOBS = (f"/apis/{GROUP}/{API_VERSION_NAME}", PLURAL)
ROUTES = {
    "EmbeddingJob": JOBS,
    "EmbeddingSchedule": (JOBS[0], schedule_status.PLURAL),
    "CronJob": ("/apis/batch/v1", "cronjobs"),
    "Job": ("/apis/batch/v1", "jobs"),
    "ConfigMap": ("/api/v1", "configmaps"),
    "Service": ("/api/v1", "services"),
    "Pod": ("/api/v1", "pods"),
    "Event": ("/api/v1", "events"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "StatefulSet": ("/apis/apps/v1", "statefulsets"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "PodGroup.scheduling.volcano.sh": ("/apis/scheduling.volcano.sh/v1beta1", "podgroups"),
    "PodGroup.scheduling.x-k8s.io": ("/apis/scheduling.x-k8s.io/v1alpha1", "podgroups"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
}
"""By kind: group and version, plural. A kind that several groups have comes with its group."""
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def kind_of(item: Object) -> str:
    """The kind of an object; with its API group where several groups have that kind."""
    kind, group = str(item["kind"]), str(item["apiVersion"]).partition("/")[0]
    return kind if kind in ROUTES else f"{kind}.{group}"


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """The path of an object, or of all in a namespace; "" for all namespaces."""
    prefix, plural = ROUTES[kind]
    middle = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}{middle}/{plural}" + (f"/{name}" if name else "")


def request_of(method: str, path: str, content_type: str) -> tuple[str, str]:
    """The verb and the resource of a request, as Kubernetes' own metrics name them."""
    # /apis/GROUP/VERSION or /api/v1, namespaces/NAME for one namespace, PLURAL, NAME, subresource.
    _, root, *rest = path.split("/")
    rest = rest[2:] if root == "apis" else rest[1:]
    if rest[0] == "namespaces":
        rest = rest[2:]
    resource = "/".join((rest[0], *rest[2:]))
    if method == "GET":
        return ("get" if rest[1:] else "list"), resource
    if method == "DELETE" and not rest[1:]:
        return "deletecollection", resource
    if content_type.startswith("application/apply"):
        return "apply", resource
    return _VERBS[method], resource
