"""``ready`` of an input: what has to be there before a job reads it, and how long it waits.

Each field is one condition, and all that are set must hold.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from embertide.spec.base import VALIDATIONS, SpecModel, normalise_uri
from embertide.spec.cel import Rule
from embertide.spec.freshness import Duration, duration_seconds
from embertide.spec.schemes import FILE, S3, any_pattern

DEFAULT_WITHIN = "2h"
_MAX_MARKER = 1024
_STARTS = " or ".join(scheme.start for scheme in (S3, FILE))
_MARKER_MUST = (
    f"must be a name below uri, such as _SUCCESS, or an {_STARTS} URI with a valid bucket"
)
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 15.0, 300.0


def _check_marker(text: str) -> str:
    try:
        if "://" in text:
            normalise_uri(text)
        elif text.startswith("/") or text != text.strip():
            raise ValueError
    except ValueError:
        raise ValueError(f"is {text!r}; {_MARKER_MUST}") from None
    return text


def _text(longest: int, rule: str, message: str) -> Any:
    schema = {"type": "string", "maxLength": longest}
    return WithJsonSchema(schema | {VALIDATIONS: [Rule(rule, message).to_schema()]})


Marker = Annotated[
    str,
    Field(min_length=1, max_length=_MAX_MARKER),
    AfterValidator(_check_marker),
    _text(
        _MAX_MARKER,
        "self.size() > 0 && self == self.trim() && !self.startsWith('/') && (!self.contains('://')"
        f" || self.matches(r'^({any_pattern()})'))",
        _MARKER_MUST,
    ),
]


class Ready(SpecModel):
    """The conditions under which an input is ready to be read. ``{}``: there is an object."""

    object: Marker | None = Field(
        default=None,
        description="Object that the writer creates last, such as _SUCCESS: a name below uri, or a "
        "whole URI. Its content does not matter.",
    )
    min_objects: int | None = Field(
        default=None, ge=1, description="Least number of objects; hidden ones do not count."
    )
    min_rows: int | None = Field(
        default=None,
        ge=1,
        description="parquet, npy and tables: least number of rows of all objects, by their "
        "metadata.",
    )
    min_bytes: int | None = Field(
        default=None, ge=1, description="Least size of all objects, in bytes."
    )
    settled: Duration | None = Field(
        default=None,
        description="Time for which no object has been created or changed, such as 10m, by the "
        "times that the store gives.",
    )
    new_version: bool = Field(
        default=False,
        description="delta and iceberg: the table has another version than the one that was read "
        "for the output's current version.",
    )
    within: Duration = Field(
        default=DEFAULT_WITHIN,
        description="Time that the job waits for these conditions, such as 2h, from when it first "
        "looks; then it fails with the reason InputsNotReady.",
    )

    @property
    def within_seconds(self) -> int:
        """How long to wait, in seconds."""
        return duration_seconds(self.within)

    @property
    def settled_seconds(self) -> int:
        """How long nothing may have changed, in seconds; 0 without that condition."""
        return duration_seconds(self.settled) if self.settled is not None else 0


READY = (
    "What the job waits for before it reads this input. If unset, it does not wait: an input that "
    "is not there fails the job."
)
"""Description of the field of that name."""


def look_again_seconds(waited: float) -> float:
    """The pause before the next look at inputs that a job has waited for so long, in seconds.

    A quarter of the time waited, from 15 s to 5 min: who waits long may learn of it later, and a
    wait of two hours takes about 35 looks.
    """
    return min(_LONGEST_PAUSE_SECONDS, max(_SHORTEST_PAUSE_SECONDS, waited / 4))
