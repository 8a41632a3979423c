"""Merge a job's pod template into the operator's: mappings by key, named lists by name.

It is the part of Kubernetes' strategic merge patch that `kubectl patch` users know: an entry of
``containers``, ``volumes`` or ``env`` changes the entry of the same name, or is added. A volume
that has a source, such as a claim under the name ``scratch``, replaces ours.
"""

from __future__ import annotations

from typing import Any

from embertide.spec.naming import CONTAINER

Object = dict[str, Any]

# Lists of objects are merged by these fields; all other lists are replaced.
MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "ports": "containerPort",
}
# Entries of these lists that say what they are replace ours, which may say otherwise: a volume has
# one source, a variable a value or a place to take it from.
_ONE_SOURCE = ("env", "volumes")
# Fields of a pod that say on which nodes it may run; tolerations only say where it need not stay
# away from.
_PLACEMENT = (
    "affinity",
    "nodeName",
    "nodeSelector",
    "resourceClaims",
    "runtimeClassName",
    "topologySpreadConstraints",
)


def for_planner(template: Object, *, apart: bool) -> Object:
    """The part of a job's pod template that holds for its planner.

    Its worker's resources are the workers' alone.

    Args:
        apart: whether to leave out on which nodes the workers are placed as well.
    """
    spec = dict(template.get("spec", {}))
    for key in _PLACEMENT if apart else ():
        spec.pop(key, None)
    return without_resources({**template, "spec": spec})


def without_resources(template: Object) -> Object:
    """The template without the resources of its worker."""
    spec = template.get("spec", {})
    if not spec.get("containers"):
        return template
    kept = [
        {k: v for k, v in item.items() if k != "resources" or item["name"] != CONTAINER}
        for item in spec["containers"]
    ]
    return {**template, "spec": {**spec, "containers": kept}}


def stay_away(affinity: Object, keys: tuple[str, ...]) -> Object:
    """The affinity, to nodes only that have none of these labels."""
    expressions = [{"key": key, "operator": "DoesNotExist"} for key in keys]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    nodes = affinity.get("nodeAffinity") or {}
    # A node has to match one of the terms, so each of them says it.
    terms = (nodes.get(required) or {}).get("nodeSelectorTerms") or [{}]
    terms = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *expressions]}
        for term in terms
    ]
    return {**affinity, "nodeAffinity": {**nodes, required: {"nodeSelectorTerms": terms}}}


def merge(ours: Object, theirs: Object) -> Object:
    """``ours`` with the fields of ``theirs`` added or replaced; neither is modified.

    A field that is null in ``theirs`` is removed.
    """
    result = dict(ours)
    for key, value in theirs.items():
        mine = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(mine, dict):
            result[key] = merge(mine, value)
        elif isinstance(value, list) and isinstance(mine, list):
            result[key] = _merge_lists(key, mine, value)
        else:
            result[key] = value
    return result


def _merge_lists(key: str, mine: list[Any], theirs: list[Any]) -> list[Any]:
    if key == "tolerations":
        return theirs + mine  # the first one that matches a taint applies
    if key == "envFrom":
        return mine + theirs  # the last one that has a variable applies
    field = MERGE_KEYS.get(key)
    if field is None:
        return theirs
    result = list(mine)
    places = {item.get(field): i for i, item in enumerate(mine) if isinstance(item, dict)}
    for item in theirs:
        at = places.get(item.get(field)) if isinstance(item, dict) else None
        if at is None:
            result.append(item)
        elif key in _ONE_SOURCE and len(item) > 1:
            result[at] = item
        else:
            result[at] = merge(result[at], item)
    return result
