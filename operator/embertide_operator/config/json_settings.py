"""Settings that are JSON: each parser's ValueError says what is allowed."""

from __future__ import annotations

import json
from typing import Any

from embertide.spec.naming import CONTAINER
from embertide_operator.api.quantities import is_amount
from embertide_operator.config.template_problems import problems

_SECTIONS = ("limits", "requests")


def parse_peers(text: str) -> tuple[dict[str, Any], ...]:
    """NetworkPolicyPeers as a list; "" for none."""
    allowed = "a JSON list of NetworkPolicyPeers"
    value = _parse(text or "[]", allowed)
    # A peer without any selector would be an error of the API server, for every job.
    if not isinstance(value, list) or not all(isinstance(item, dict) and item for item in value):
        raise ValueError(allowed)
    return tuple(value)


def parse_template(text: str) -> dict[str, Any]:
    """A pod template for the workers of all jobs; "" for none."""
    allowed = "a pod template as a JSON object"
    return _checked(_mapping(text, allowed), "worker.podTemplate", allowed)


def parse_templates(text: str) -> dict[str, dict[str, Any]]:
    """A pod template by namespace; "" for none."""
    allowed = "pod templates by namespace as a JSON object"
    value = _mapping(text, allowed)
    return {
        name: _checked(template, f"worker.namespaces.{name}.podTemplate", allowed)
        for name, template in value.items()
    }


def parse_resources(text: str) -> dict[str, Any]:
    """The resources of a container; "" for none."""
    allowed = "resources of a container as a JSON object with limits and requests"
    value = _mapping(text, allowed)
    if wrong := _wrong_resources(value, "resources"):
        raise ValueError(f"{allowed}; {wrong}")
    return value


def _mapping(text: str, allowed: str) -> dict[str, Any]:
    value = _parse(text or "{}", allowed)
    if not isinstance(value, dict):
        raise ValueError(allowed)
    return value


def _parse(text: str, allowed: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(allowed) from None


def _checked(template: Any, at: str, allowed: str) -> dict[str, Any]:
    if not isinstance(template, dict):
        raise ValueError(f"{allowed}; {at}: must be a mapping")
    wrong = [f"{path}: {message}" for path, message in problems(template, at)]
    if not wrong:
        containers = (template.get("spec") or {}).get("containers") or []
        worker: dict[str, Any] = next((c for c in containers if c["name"] == CONTAINER), {})
        if "image" in worker:
            wrong.append(f"{at}: set the worker's image by worker.image and worker.imageCuda")
        if resources := _wrong_resources(worker.get("resources") or {}, f"{at} resources"):
            wrong.append(resources)
    if wrong:
        raise ValueError(f"{allowed}; {'; '.join(wrong)}")
    return template


def _wrong_resources(resources: dict[str, Any], at: str) -> str:
    for section, amounts in resources.items():
        if section not in _SECTIONS or not isinstance(amounts, dict):
            return f"{at}.{section}: only limits and requests, each a mapping"
        for name, amount in amounts.items():
            if not is_amount(amount):
                return f"{at}.{section}.{name}: must be like 500m, 2 or 8Gi"
    return ""
