"""Identity of values: a digest of what they hold, whatever their classes and modules are called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

PLACED = {"identity": False}
"""Metadata of a field that says where or how something is done: no part of its identity."""


def identity(value: object) -> Any:
    """A value as JSON has it: equal where, and only where, it is the same.

    A dataclass and a named tuple is its fields by name, without those that do not count in a
    comparison or are :data:`PLACED`; ``identity_facts`` of its class, if any, comes before them.

    Raises:
        TypeError: a value has no such form.
    """
    if isinstance(value, Enum):
        return identity(value.value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        facts: dict[str, object] = getattr(type(value), "identity_facts", dict)()
        own = (f.name for f in fields(value) if f.metadata.get("identity", f.compare))
        return facts | {name: identity(getattr(value, name)) for name in own}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return identity(value._asdict())
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: identity(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [identity(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no identity")


def canonical(value: object) -> bytes:
    """The identity as text: keys in order, no spaces."""
    return json.dumps(identity(value), sort_keys=True, separators=(",", ":")).encode()


def digest_of(value: object) -> str:
    """32 hexadecimal digits of the identity."""
    return hashlib.sha256(canonical(value)).hexdigest()[:32]
