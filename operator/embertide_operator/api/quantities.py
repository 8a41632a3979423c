"""Kubernetes quantities, such as ``500m`` and ``2Gi``."""

from __future__ import annotations

from typing import Any

from kubernetes.utils.quantity import parse_quantity

_LARGEST = 2.0**63
"""Kubernetes keeps amounts as 64-bit integers."""


def is_amount(value: Any) -> bool:
    """Whether a value is a quantity that a container may ask for."""
    try:
        return 0 <= quantity(value) < _LARGEST
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        return False


def quantity(value: Any) -> float:
    """The number that a quantity stands for.

    Raises:
        ValueError: ``value`` is not a quantity.
    """
    return float(parse_quantity(value))


def size_text(value: Any) -> str:
    """A size for people: one with a unit as it is, a number of bytes in Mi."""
    text = str(value)
    if not text.isdecimal():
        return text
    size = int(text)
    return f"{size / (1 << 20):.4g}Mi" if size >= 1 << 20 else text
