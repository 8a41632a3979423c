"""Whether an object in the API still says what the operator applied.

Fields that the operator does not set do not matter here: defaults of the API server, and
what webhooks add. The API server also writes some values in a form of its own, such as ``1`` for
the quantity ``1000m``, and leaves out empty ones.
"""

from __future__ import annotations

from typing import Any

from embertide_operator.api.quantities import quantity
from embertide_operator.api.routes import Object

_KEYS = {
    "ownerReferences": ("uid",),
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "ports": ("port", "containerPort", "protocol"),
}
"""Lists whose items the API server knows by these fields, and to which others may add theirs."""
_WHOLE_LISTS = ("ingress", "egress")
"""Fields in whose lists there is nothing but what was applied."""
_WHOLE_MAPS = ("selector", "podSelector", "namespaceSelector", "matchLabels")
"""The same of mappings: one more label selects other pods."""
_QUANTITIES = ("limits", "requests", "sizeLimit", "divisor")


def was_changed(wanted: Object, found: Object) -> bool:
    """Whether somebody changed or removed a field of what the operator wants."""
    content = {key: value for key, value in wanted.items() if key not in ("apiVersion", "kind")}
    return not _is_within(content, found, "", whole=False)


def _is_within(wanted: Any, found: Any, field: str, *, whole: bool) -> bool:
    """Whether a field's value is what is wanted; ``whole``: with nothing added to lists."""
    whole = whole or field in _WHOLE_LISTS
    if field in _QUANTITIES:
        return _are_same_amounts(wanted, found)
    if isinstance(wanted, dict) and isinstance(found, dict):
        if field in _WHOLE_MAPS and found.keys() - wanted.keys():
            return False
        return all(
            _is_within(value, found[key], key, whole=whole) if key in found else _is_empty(value)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(found, list):
        keys = None if whole else _KEYS.get(field)
        return _is_list_within(wanted, found, keys, whole=whole)
    return bool(wanted == found)


def _is_list_within(
    wanted: list[Any], found: list[Any], keys: tuple[str, ...] | None, *, whole: bool
) -> bool:
    if keys is None:
        pairs = zip(wanted, found, strict=False)
        same = all(_is_within(item, other, "", whole=whole) for item, other in pairs)
        return len(wanted) == len(found) and same
    return all(
        any(
            _have_same_keys(item, other, keys) and _is_within(item, other, "", whole=whole)
            for other in found
        )
        for item in wanted
    )


def _have_same_keys(wanted: Any, found: Any, keys: tuple[str, ...]) -> bool:
    if not isinstance(wanted, dict) or not isinstance(found, dict):
        return bool(wanted == found)
    return all(found.get(key) == wanted[key] for key in keys if key in wanted)


def _are_same_amounts(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(
            key in found and _are_same_amounts(value, found[key]) for key, value in wanted.items()
        )
    try:
        return quantity(wanted) == quantity(found)
    except (ValueError, TypeError, AttributeError):
        return bool(wanted == found)


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return value in (None, [], "", 0, False)
