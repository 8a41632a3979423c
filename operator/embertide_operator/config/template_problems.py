"""What is wrong with a pod template before the API server sees it merged into a pod."""

from __future__ import annotations

from typing import Any

from embertide.spec.naming import CONTAINER
from embertide_operator.api.routes import Object
from embertide_operator.config.pod_template import MERGE_KEYS

Problems = list[tuple[str, str]]
"""Paths and messages."""

_OWN_VOLUMES = ("job", "credentials", "stores")
# Fields that the operator relies on, with the reason.
_FORBIDDEN = {
    "restartPolicy": "a StatefulSet's pods always restart",
    "hostname": "the rendezvous uses the DNS names of the pods",
    "subdomain": "the rendezvous uses the DNS names of the pods",
    "automountServiceAccountToken": "workers get no access to the Kubernetes API",
}
_OBJECT_LISTS = (*MERGE_KEYS, "tolerations", "envFrom")
"""Fields that are lists of mappings wherever a pod has them."""
_MAPPINGS = (
    *("labels", "annotations", "nodeSelector", "affinity", "nodeAffinity", "securityContext"),
    *("resources", "limits", "requests"),
)
"""Fields that are mappings wherever a pod has them."""


def problems(template: Object, at: str = "spec.workers.podTemplate") -> Problems:
    """The problems of a pod template that is merged into the operator's.

    Args:
        at: the path of the template.
    """
    wrong = [
        (f"{at}.{key}", "unknown field; allowed: metadata, spec")
        for key in template
        if key not in ("metadata", "spec")
    ]
    for key in ("metadata", "spec"):
        if not isinstance(template.get(key, {}), dict):
            wrong.append((f"{at}.{key}", "must be a mapping"))
            return wrong
    if shapes := _wrong_shapes(template, at):
        return [*wrong, *shapes]
    spec = template.get("spec", {})
    wrong += [
        (f"{at}.spec.{key}", f"cannot be set: {why}")
        for key, why in _FORBIDDEN.items()
        if key in spec
    ]
    wrong += [
        (f"{at}.spec.volumes[{i}]", f"{volume['name']!r} is the operator's own; name it otherwise")
        for i, volume in enumerate(spec.get("volumes") or [])
        if volume.get("name") in _OWN_VOLUMES
    ]
    for i, container in enumerate(spec.get("containers") or []):
        wrong += _of_container(container, f"{at}.spec.containers[{i}]")
    return wrong


def _of_container(container: Object, at: str) -> Problems:
    if "name" not in container:
        return [(at, f"needs a name; the worker's is {CONTAINER!r}")]
    if container["name"] == CONTAINER and {"command", "args"} & set(container):
        return [(at, "command and args cannot be set; set workers.image")]
    return []


def _wrong_shapes(value: Any, at: str, field: str = "") -> Problems:
    """Lists that must be mappings, and the other way round, in fields that are merged."""
    if field in _OBJECT_LISTS:
        return _of_list(value, at, MERGE_KEYS.get(field))
    if field in _MAPPINGS and not isinstance(value, dict | None):
        return [(at, "must be a mapping")]
    if isinstance(value, dict):
        return [p for key, item in value.items() for p in _wrong_shapes(item, f"{at}.{key}", key)]
    if isinstance(value, list):
        return [p for i, item in enumerate(value) for p in _wrong_shapes(item, f"{at}[{i}]")]
    return []


def _of_list(items: Any, at: str, key: str | None) -> Problems:
    """Problems of a list of mappings whose entries are known by the value of ``key``."""
    if items is None:
        return []
    if not isinstance(items, list):
        return [(at, "must be a list")]
    wrong: Problems = []
    for i, item in enumerate(items):
        if not isinstance(item, dict):
            wrong.append((f"{at}[{i}]", "must be a mapping"))
        elif key in item and not isinstance(item[key], str | int):
            wrong.append((f"{at}[{i}].{key}", "must be a name or a number"))
        else:
            wrong += _wrong_shapes(item, f"{at}[{i}]")
    return wrong
