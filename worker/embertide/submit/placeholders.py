"""Placeholders such as ``{date-1d}`` in a job's template, filled from the scheduled time.

Days, weeks and months count by the calendar of the schedule's time zone: a day before 03:00 is
03:00, also on the day when summer time begins. Hours are 60 minutes each.
"""

from __future__ import annotations

import calendar
import difflib
import re
from datetime import UTC, datetime, timedelta

_FORMATS = {"date": "%Y-%m-%d", "datetime": "%Y%m%dT%H%M"}
_DIRECTIVES = tuple("YymdHMjGVuz")
# An escaped brace, a placeholder, or a brace that is neither.
_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_INSIDE = re.compile(r"([A-Za-z]\w*)\s*(?:([+-]\d+)([A-Za-z]+))?\s*(?::(.+))?")
_ALLOWED = "{date}, {datetime}, with an offset {date-1d} (h, d, w, mo), a format {date:%Y/%m/%d}"


def fill(text: str, time: datetime) -> str:
    """The text with its placeholders filled in.

    Args:
        time: the scheduled time in the schedule's zone. ``{{`` and ``}}`` become braces.

    Raises:
        ValueError: an unknown placeholder, offset or format; the message says what is allowed.
    """
    return _PART.sub(lambda found: _filled(found, time), text)


def known_in(text: str) -> str:
    """The first placeholder that :func:`fill` knows; "" where other braces stand, or none."""
    for found in _PART.finditer(text):
        parts = _INSIDE.fullmatch(found.group(1) or "")
        if parts is not None and parts.group(1) in _FORMATS:
            return found.group()
    return ""


def _filled(found: re.Match[str], time: datetime) -> str:
    whole, inside = found.group(0), found.group(1)
    if whole in ("{{", "}}"):
        return whole[0]
    if inside is None:
        raise ValueError(f"has a single {whole!r}; write {whole * 2} for a brace")
    parts = _INSIDE.fullmatch(inside)
    if parts is None or parts.group(1) not in _FORMATS:
        name = parts.group(1) if parts else inside
        near = difflib.get_close_matches(name, _FORMATS, n=1)
        hint = f", did you mean {{{near[0]}}}?" if near else ""
        raise ValueError(
            f"has the unknown placeholder {whole}{hint}; allowed: {_ALLOWED}; {{{{ for a brace"
        )
    name, amount, unit, form = parts.groups()
    try:
        then = moved(time, int(amount), unit) if amount else time
    except (OverflowError, calendar.IllegalMonthError):
        raise ValueError(f"has {whole}, which leads out of the calendar") from None
    return then.strftime(_checked(form, whole) if form else _FORMATS[name])


def moved(time: datetime, amount: int, unit: str) -> datetime:
    """A time so many hours (h), days (d), weeks (w) or months (mo) later, or before.

    Raises:
        ValueError: another unit.
        OverflowError: it leads out of the calendar.
    """
    match unit:
        case "h":
            return (time.astimezone(UTC) + timedelta(hours=amount)).astimezone(time.tzinfo)
        case "d" | "w":
            return _existing(time + timedelta(days=amount * (7 if unit == "w" else 1)))
        case "mo":
            return _existing(_months(time, amount))
        case _:
            raise ValueError(f"has the unknown unit {unit!r}; allowed: h, d, w and mo (months)")


def _months(time: datetime, amount: int) -> datetime:
    """The same day of another month, or that month's last."""
    years, month = divmod(time.month - 1 + amount, 12)
    year = time.year + years
    if not 1 <= year <= 9999:
        raise OverflowError
    last = calendar.monthrange(year, month + 1)[1]
    return time.replace(year=year, month=month + 1, day=min(time.day, last))


def _existing(time: datetime) -> datetime:
    """The same wall clock time; one that summer time skips becomes an hour later."""
    return time.astimezone(UTC).astimezone(time.tzinfo)


def _checked(form: str, whole: str) -> str:
    for found in re.findall(r"%(.?)", form):
        if found not in _DIRECTIVES:
            allowed = ", ".join(f"%{letter}" for letter in _DIRECTIVES)
            raise ValueError(f"has %{found} in {whole}; allowed: {allowed}")
    return form
