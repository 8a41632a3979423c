"""Credentials are taken out of what a container writes: log lines, and its termination message."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from embertide.spec import naming
from embertide.spec.push import SECRET_KEYS

SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")
_OF_INDEXES = tuple(name for names in SECRET_KEYS.values() for name in names)
_SHORTEST = 8
"""Characters; a shorter value is no key, and may be part of any word."""
_IN_PLACE = "[redacted]"


def redact(text: str, env: Mapping[str, str] = os.environ) -> str:
    """The text without the credentials of this container, as they are now.

    They are files of the job's Secrets, which somebody may renew, or variables of its pod template.
    """
    for value in _credentials(env):
        text = text.replace(value, _IN_PLACE)
    return text


def _credentials(env: Mapping[str, str]) -> list[str]:
    values = [env.get(name, "") for name in (*SECRETS, *_OF_INDEXES)]
    if folder := env.get(naming.ENV_CREDENTIALS_FOLDER):
        values += [_content(Path(folder) / name) for name in SECRETS]
    if folder := env.get(naming.ENV_STORES_FOLDER):
        values += [_content(path) for name in SECRETS for path in Path(folder).glob(f"*/{name}")]
    return [value for value in values if len(value) >= _SHORTEST]


def _content(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
