"""Numbers with their units, as many digits as say something, and no line break between the two."""

from __future__ import annotations

import math
import re

from embertide.facts.telemetry.format import human_bytes, human_count
from embertide.spec.schemes import scheme_of

NO_BREAK = "\N{NO-BREAK SPACE}"
"""Between a number and its unit."""
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS = ("", "k", "M", "G", "T")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/@]*@")


def size(count: float) -> str:
    """Bytes: ``1.5 KiB``."""
    return human_bytes(count).replace(" ", NO_BREAK)


def count(number: float) -> str:
    """All digits: ``1,048,576``."""
    return f"{number:,.0f}"


def short_count(number: float) -> str:
    """Three digits: ``1.05 M``; up to 9,999 all of them."""
    if number < 10_000:
        return count(number)
    # 999,950 would be written as 1000 of the smaller unit.
    power = min(int(math.log10(number * 1.0005)) // 3, len(_COUNT_UNITS) - 1)
    scaled = number / 1000**power
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{digits}f}{NO_BREAK}{_COUNT_UNITS[power]}"


def rate(per_second: float, what: str) -> str:
    """``21.3 M edges/s``."""
    return f"{human_count(per_second)} {what}/s".replace(" ", NO_BREAK)


def duration(seconds: float) -> str:
    """Three digits: ``4.27 s``, ``340 ms``; from a minute on ``1 min 20 s``, ``2 h 45 min``."""
    return _duration(seconds).replace(" ", NO_BREAK)


def _duration(seconds: float) -> str:
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f} µs" if seconds else "0 s"
    if seconds < 0.9995:
        milliseconds = seconds * 1000
        return f"{milliseconds:.{0 if milliseconds >= 9.95 else 1}f} ms"
    if seconds < 59.95:
        return f"{seconds:.{2 if seconds < 9.995 else 1}f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def round_size(count: float) -> str:
    """Bytes on a scale, all digits: ``64 MiB``, ``1.25 GiB``."""
    unit = min(int(math.log2(max(1.0, count)) // 10), len(_BYTE_UNITS) - 1)
    return f"{count / 1024**unit:g}{NO_BREAK}{_BYTE_UNITS[unit]}"


def round_duration(seconds: float) -> str:
    """Seconds on a scale: ``0.25 s``; from a minute on as `duration` has it."""
    if seconds < 59.95:
        return f"{seconds:g}{NO_BREAK}s" if seconds >= 0.1 or not seconds else duration(seconds)
    return duration(seconds)


def share(part: float, whole: float) -> str:
    """``24 %``; ``-`` of nothing."""
    if not whole:
        return "-"
    percent = 100.0 * part / whole
    digits = 1 if 0.05 <= percent < 0.95 else 0
    return f"{percent:.{digits}f}{NO_BREAK}%"


def against_mean(value: float, mean: float) -> str:
    """``+8 %``, ``±0 %``; ``-`` where the mean is nothing."""
    if not mean:
        return "-"
    percent = round(100.0 * (value / mean - 1.0))
    sign = "±" if not percent else "+" if percent > 0 else "\N{MINUS SIGN}"
    return f"{sign}{abs(percent)}{NO_BREAK}%"


def small(value: float) -> str:
    """Two digits of what may be tiny: ``0.0012``, ``3.1 × 10⁻⁷``."""
    if value >= 0.0001 or not value:
        return f"{value:.2g}"
    digits, _, exponent = f"{value:.1e}".partition("e")
    raised = str(int(exponent)).translate(_RAISED)
    return f"{digits}{NO_BREAK}×{NO_BREAK}10{raised}"


def some(number: int, noun: str) -> str:
    """``1 worker``, ``4 workers``."""
    return f"{number:,}{NO_BREAK}{noun}{'' if number == 1 else 's'}"


def without_secrets(uri: str) -> str:
    """A URI as it may be shown: no user, no password, no query, which can hold a signature."""
    shown = _USER.sub(r"\1***@", uri)
    path, question, _ = shown.partition("?")
    # In a path or key of an own store a question mark is a character like any other.
    secret = question and scheme_of(path) is None
    return f"{path}?***" if secret else shown
