"""Access keys in mounted files, read again when they change, as those of a mounted Secret do.

Kubernetes writes a changed Secret beside the old one and swaps the folders, so that a reader sees
the old keys or the new ones; variables of a process never change. The SDK asks for the keys before
each request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from botocore.credentials import CredentialProvider, Credentials, ReadOnlyCredentials

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""The files, the last of which may be missing."""
_METHOD = "mounted-secret"
_VARIABLES = "env"

State = tuple[tuple[int, int] | None, ...]
"""For each file its inode and time of change; None for one that is missing."""


def prefer_files(session: Any, folder: Path, *, to_variables: bool = False) -> None:
    """Let a session of botocore take the folder's keys, unless variables name others.

    Args:
        to_variables: whether the files come before variables too.
    """
    providers = session.get_component("credential_provider").providers
    first = int(not to_variables and bool(providers) and providers[0].METHOD == _VARIABLES)
    providers.insert(first, _MountedProvider(folder))


class _MountedProvider(CredentialProvider):  # type: ignore[misc]
    METHOD = _METHOD
    CANONICAL_NAME = _METHOD

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def load(self) -> Credentials | None:
        """None where the folder has no keys, so that the next provider is asked."""
        return MountedCredentials(self._folder) if _read(self._folder) else None


class MountedCredentials(Credentials):  # type: ignore[misc]
    """The keys of a folder as they are now; those read last, should they be gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state: State = ()
        super().__init__("", "", method=_METHOD)
        self.get_frozen_credentials()

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """The keys to sign the next request with."""
        state = _state(self._folder)
        if state != self._state and (found := _read(self._folder)) is not None:
            self.access_key, self.secret_key, self.token = found
            self._state = state
        return ReadOnlyCredentials(self.access_key, self.secret_key, self.token)


def _read(folder: Path) -> tuple[str, str, str | None] | None:
    """Key id, key and token of one state of the folder; None where a key is missing or empty."""
    while True:
        before = _state(folder)
        values = [_text(folder / name) for name in KEYS]
        if _state(folder) == before:
            break
    key_id, key, token = values
    return (key_id, key, token or None) if key_id and key else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""


def _state(folder: Path) -> State:
    return tuple(map(_file_state, (folder / name for name in KEYS)))


def _file_state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns
