"""Version names start with the time the run began, so that sorting by name sorts by age."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

MANIFEST = "_manifest.json"
"""With an underscore, by which readers of a folder of parquet files tell what is not data."""

REPORT_DATA = "_report.json"
REPORT_PAGE = "_report.html"
"""What the run did, as data and as a page. Beside the manifest and not in it: both are written when
the version is published already, since the time that publishing took is part of them."""

HELD = "_held.json"
"""Why a complete version did not become current: there as long as it is held. Written before the
manifest, so that a version that is complete never looks as if it had passed."""

TARGETS = "_targets"
"""The folder below an output that has the versions of some nodes alone. Readers of the output look
neither there nor into any other folder that begins with an underscore."""

_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")
_STAMP = "%Y%m%dT%H%M%SZ"
_FRACTIONS = 1 << 16


def new_version(now: datetime | None = None) -> str:
    """A name such as ``20261121T041922Z-3fa9c1`` for a run that begins now (UTC).

    The first four of the last six digits are the fraction of the second, so that runs begun
    in one second sort as they began; the other two are random.
    """
    now = (now or datetime.now(UTC)).astimezone(UTC)
    fraction = now.microsecond * _FRACTIONS // 1_000_000
    return f"{now.strftime(_STAMP)}-{fraction:04x}{secrets.token_hex(1)}"


def is_version(name: str) -> bool:
    """Whether a folder's name is a version name."""
    return _NAME.fullmatch(name) is not None


def begun(version: str) -> datetime:
    """When the run began, within 16 microseconds (UTC)."""
    stamp, digits = version.split("-")
    second = datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
    return second.replace(microsecond=int(digits[:4], 16) * 1_000_000 // _FRACTIONS)


def version_uri(output_uri: str, version: str) -> str:
    """The prefix of a version's objects."""
    return f"{output_uri.rstrip('/')}/versions/{version}"


def targets_uri(output_uri: str) -> str:
    """Where versions of some nodes alone are published, as below an output of their own."""
    return f"{output_uri.rstrip('/')}/{TARGETS}"


def published_uri_of(spec: Mapping[str, Any]) -> str:
    """Where a job publishes, by its spec as the API server has it; "" of one without an output."""
    uri = str((spec.get("output") or {}).get("uri", ""))
    targets = (spec.get("inference") or {}).get("targets")
    return uri if targets is None or not uri else targets_uri(uri)


def is_of_targets(output_uri: str) -> bool:
    """Whether what is published there has the rows of some nodes alone."""
    return output_uri.rstrip("/").rpartition("/")[2] == TARGETS
