"""Kubernetes quantities, such as ``500m`` and ``2Gi``."""

from __future__ import annotations

from typing import Any

from kubernetes.utils.quantity import parse_quantity


def quantity(value: Any) -> float:
    """The number that a quantity stands for.

    Raises:
        ValueError: ``value`` is not a quantity.
    """
    return float(parse_quantity(value))
