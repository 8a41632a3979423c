"""Where the objects of an input are: one place, several, a pattern, or a window of days.

A pattern and a window stay what they are in the manifest; which places they stand for is found
when the inputs are listed (``io/readers/places.py``).
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from embertide.spec.base import (
    INCLUDE,
    RECURSIVE,
    VALIDATIONS,
    NamePattern,
    Problem,
    SpecModel,
    Uri,
    raise_problems,
)
from embertide.spec.cel import Rule

MAX_URIS = 16
"""The most URIs of one input; with more the API server finds the rules of their URIs too costly."""
_LAST = r"^[1-9][0-9]{0,2}d$"
_DAY = r"^(19[7-9][0-9]|[2-9][0-9]{3})-[0-9]{2}-[0-9]{2}$"
_DIRECTIVES = "YymdjGVu"
_MARKS = "*?["
_YEAR = [date(2026, 1, 1) + timedelta(days=day) for day in range(365)]

_DAY_MUST = "must be a day, such as 2026-11-22"


def _check_day(value: Any) -> Any:
    """YAML reads a day without quotes as a date."""
    text = value.isoformat() if type(value) is date else value
    if isinstance(text, str):
        try:
            if not re.fullmatch(_DAY, text):
                raise ValueError
            date.fromisoformat(text)
        except ValueError:
            raise ValueError(f"is {text!r}; {_DAY_MUST}") from None
    return text


# Of a schedule's template the chart checks types and lengths, not rules: it may be a placeholder.
Day = Annotated[
    str,
    BeforeValidator(_check_day),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": 64,
            VALIDATIONS: [Rule(f"self.matches(r'{_DAY}')", _DAY_MUST).to_schema()],
        }
    ),
]

_WINDOW_RULES = (
    Rule(
        "has(self.until)",
        "is required: the last day of the window, such as 2026-11-22; a schedule fills in {date}, "
        "{date-1d} and the like, and its own day where until is left out",
        ".until",
        "FieldValueRequired",
    ),
    Rule(
        r"!self.of.startsWith('/') && !self.of.contains('..') && !self.of.matches(r'[*?\[]')",
        "must be the name of a day's folder below uri, such as dt=%Y-%m-%d",
        ".of",
    ),
)


class Window(SpecModel):
    """The last days of data, each in a folder of its own below ``uri``."""

    rules: ClassVar[tuple[Rule, ...]] = _WINDOW_RULES

    last: Annotated[str, Field(pattern=_LAST, max_length=4)] = Field(
        description="Number of days, such as 7d, up to and with until."
    )
    of: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="Name of a day's folder below uri, such as dt=%Y-%m-%d or %Y/%m/%d: %Y %y %m "
        "%d %j %G %V %u, as in strftime."
    )
    until: Day | None = Field(
        default=None,
        description="The last day, such as 2026-11-22. In a schedule's template {date-1d} is the "
        "day before the scheduled time; if unset there, it is the day of that time.",
    )
    missing_days: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="Days without objects. refuse: the job fails, or with ready waits, and names "
        "them. allow: the others are read, one at least; the report names what is missing.",
    )

    @property
    def days(self) -> list[date]:
        """The days, oldest first."""
        assert self.until is not None, "checked"
        last = date.fromisoformat(self.until)
        count = int(self.last.removesuffix("d"))
        return [last - timedelta(days=back) for back in range(count - 1, -1, -1)]

    def folder(self, day: date) -> str:
        """A day's folder, below ``uri``."""
        return day.strftime(self.of)

    @field_validator("of")
    @classmethod
    def _check_form(cls, text: str) -> str:
        unknown = [mark for mark in re.findall(r"%(.?)", text) if mark not in (*_DIRECTIVES, "%")]
        if unknown:
            allowed = " ".join(f"%{mark}" for mark in _DIRECTIVES)
            raise ValueError(f"is {text!r}; %{unknown[0]} is not allowed, only {allowed}")
        if text.startswith("/") or ".." in text or any(mark in text for mark in _MARKS):
            raise ValueError(f"is {text!r}; must be the name of a day's folder below uri")
        if len({day.strftime(text) for day in _YEAR}) < len(_YEAR):
            raise ValueError(f"is {text!r}, the same for several days; write such as dt=%Y-%m-%d")
        return text

    @model_validator(mode="after")
    def _check_until(self) -> Self:
        if self.until is None:
            message = "is required: the last day of the window, such as 2026-11-22 (a schedule's"
            raise_problems([(("until",), message + " template may leave it out)")])
        return self


_NO_KEY = "only format npy has keys, of arrays in an npz or tensors in a file of torch; omit it"
_MAX_KEY = 1024

PLACE_RULES = (
    Rule(
        "!has(self.key) || (has(self.format) && self.format == 'npy')",
        _NO_KEY,
        ".key",
        "FieldValueForbidden",
    ),
    Rule(
        "has(self.uri) != has(self.uris)",
        "or uris is required, and not both: one place, or a list of places",
        ".uri",
        "FieldValueRequired",
    ),
    Rule(
        "!has(self.window) || has(self.uri)",
        "is for uri, the folder that its days are in; omit uris",
        ".window",
        "FieldValueForbidden",
    ),
    Rule(
        r"!has(self.window) || !has(self.uri) || !self.uri.matches(r'[*?\[]')",
        "needs a uri without *, ? and [",
        ".window",
        "FieldValueForbidden",
    ),
)
"""Rules of every input with objects."""


class ObjectInput(SpecModel):
    """Base of inputs: where their objects are."""

    uri: Uri | None = Field(
        default=None,
        description="URI of one object, or of a prefix (directory) of objects. *, ? and [...] "
        "stand for characters within a name, so that one URI means several of either; [*] is a "
        "plain *. Exclusive with uris.",
    )
    uris: Annotated[list[Uri], Field(min_length=1, max_length=MAX_URIS)] | None = Field(
        default=None,
        json_schema_extra={"x-kubernetes-list-type": "set"},
        description="Several of them, read as one input in this order; no object may be in two. "
        "Exclusive with uri.",
    )
    window: Window | None = Field(
        default=None,
        description="The last days of data, each in a folder of its own below uri. If unset, all "
        "of uri is read.",
    )
    key: Annotated[str, Field(min_length=1, max_length=_MAX_KEY)] | None = Field(
        default=None,
        description="npy: name of the array in an npz, or of the tensor in what torch.save wrote; "
        "with dots between those of dicts in dicts. If unset, there must be one alone.",
    )
    recursive: bool = Field(default=False, description=RECURSIVE)
    include: NamePattern | None = Field(default=None, description=INCLUDE)

    @property
    def places(self) -> list[str]:
        """URIs of all places; those that the manifest gives may be patterns."""
        if self.window is not None and self.uri is not None:
            folder = self.uri.rstrip("/")
            return [f"{folder}/{self.window.folder(day)}/" for day in self.window.days]
        return list(self.uris or filter(None, [self.uri]))

    @property
    def location(self) -> str:
        """Where the objects are, for messages."""
        if self.uris is not None:
            more = len(self.uris) - 1
            return self.uris[0] + (f" and {more} more (uris)" if more else "")
        assert self.uri is not None, "checked"
        if self.window is None:
            return self.uri
        return f"{self.uri} ({self.window.last} until {self.window.until})"

    @property
    def allows_missing_days(self) -> bool:
        """Whether some days of its window may have no objects."""
        return self.window is not None and self.window.missing_days == "allow"

    def at(self, place: str) -> Self:
        """The same input, at one place alone, which is taken as it is written."""
        return self.model_copy(update={"uri": literal(place), "uris": None, "window": None})

    @model_validator(mode="after")
    def _check_places(self) -> Self:
        problems: list[Problem] = []
        if self.uri is None and self.uris is None:
            problems.append((("uri",), "is required; or give uris, a list of places"))
        if self.uri is not None and self.uris is not None:
            problems.append((("uris",), "cannot be combined with uri; give either"))
        if self.window is not None and self.uri is None:
            problems.append((("window",), "is for uri, the folder that its days are in; give uri"))
        if self.window is not None and self.uri is not None and is_pattern(self.uri):
            problems.append((("window",), f"needs a uri without *, ? and [; it is {self.uri!r}"))
        if self.key is not None and getattr(self, "format", None) != "npy":
            problems.append((("key",), f"is {self.key!r}; {_NO_KEY}"))
        repeated = sorted({uri for uri in self.uris or [] if (self.uris or []).count(uri) > 1})
        if repeated:
            problems.append((("uris",), f"names {', '.join(repeated)} more than once"))
        raise_problems(problems)
        return self


def is_pattern(text: str) -> bool:
    """Whether a URI, or a name in it, stands for several."""
    return any(mark in text for mark in _MARKS)


def literal(uri: str) -> str:
    """The pattern that stands for this URI alone."""
    return re.sub(r"[*?\[]", r"[\g<0>]", uri)
