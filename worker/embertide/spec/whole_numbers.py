"""Ids of nodes that people write as text."""

from __future__ import annotations

import re

# Not what int() takes beside: "1_0" is no way in which an input has the id 10.
_WRITTEN = re.compile(r"[+-]?[0-9]{1,19}")


def whole_number(text: str) -> int | None:
    """The whole number of 64 bits that a text is, such as ``-17``; None of any other text."""
    text = text.strip()
    if _WRITTEN.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
