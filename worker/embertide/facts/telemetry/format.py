"""Numbers as people read them: bytes, counts, shares, seconds."""

from __future__ import annotations

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS = ("", "k", "M", "G", "T")


def human_bytes(size: float) -> str:
    """``1536`` -> ``1.5 KiB``."""
    return _scaled(size, 1024.0, _BYTE_UNITS)


def asked_bytes(size: float) -> str:
    """An amount that is asked for, as options take it: ``501.2`` MiB -> ``502MiB``."""
    return f"{-(-int(size) // (1 << 20))}MiB"


def human_count(count: float) -> str:
    """``21_300_000`` -> ``21.3 M``."""
    return _scaled(count, 1000.0, _COUNT_UNITS)


def _scaled(value: float, base: float, units: tuple[str, ...]) -> str:
    scaled, unit = float(value), 0
    # 999.95 would be written as 1000.0 of the smaller unit.
    while abs(scaled) >= base - 0.05 and unit < len(units) - 1:
        scaled /= base
        unit += 1
    text = f"{scaled:.0f}" if unit == 0 and scaled == int(scaled) else f"{scaled:.1f}"
    return f"{text} {units[unit]}".rstrip()


def human_share(part: int, whole: int) -> str:
    """``3, 1200`` -> ``0.25%``."""
    return f"{100 * part / max(1, whole):.3g}%"


def human_seconds(seconds: float) -> str:
    """``80`` -> ``1m20s``; below ten seconds with one decimal."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
