"""Kubernetes' numbers, such as ``500m`` and ``2Gi``."""

from __future__ import annotations

from typing import Any

from kubernetes.utils.quantity import parse_quantity


def quantity(value: Any) -> float:
    """The plain number that a quantity means.

    Raises:
        ValueError: it is none.
    """
    return float(parse_quantity(value))
