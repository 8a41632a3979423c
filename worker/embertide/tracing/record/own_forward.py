"""What a module gives while its parts are recorded in other ways."""

from __future__ import annotations

from typing import Any


def forward_of(m: Any, *args: Any) -> Any:
    """What a module gives for plain tensors, with its parts as they are when none is recorded."""
    replaced = {part: part.__dict__.pop("forward", None) for part in m.modules()}
    try:
        return m.forward(*args)
    finally:
        for part, forward in replaced.items():
            if forward is not None:
                part.forward = forward
