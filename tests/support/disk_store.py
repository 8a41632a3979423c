"""A kind of store that only tests have: one entry and one module, as every backend is.

``disk://nas/a/b`` is the file ``/a/b``, but not local: it is read as what comes over a network.
Importing this module adds the entry, so a process that names it among its imports knows the scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from embertide.errors import EmbertideError
from embertide.facts.telemetry.transfers import TransferStats
from embertide.io.storage.local import LocalStore
from embertide.io.storage.protocol import Listing, ObjectInfo, OnRetry, OnUpload
from embertide.spec.schemes import SCHEMES, Scheme
from embertide.spec.storage import Store

DISK = Scheme(
    name="disk",
    start="disk://",
    authority="nas",
    example="disk://nas/path",
    must="must be disk://nas/path",
    module=__name__,
)
SCHEMES[DISK.name] = DISK
_HERE, _THERE = "disk://nas/", "file:///"


def open_store(_settings: Store, _on_retry: OnRetry, _on_upload: OnUpload) -> Any:
    return DiskStore()


class DiskStore:
    """The methods of :class:`LocalStore`, under other URIs."""

    def __init__(self) -> None:
        self._files = LocalStore()

    @property
    def stats(self) -> TransferStats:
        return self._files.stats

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._files, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            inward = [_renamed(value, _HERE, _THERE) for value in args]
            try:
                return _renamed(method(*inward, **kwargs), _THERE, _HERE)
            except EmbertideError as error:
                raise type(error)(str(error).replace(_THERE, _HERE)) from error

        return call


def _renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return new + value.removeprefix(old) if value.startswith(old) else value
    if isinstance(value, ObjectInfo):
        return replace(value, uri=_renamed(value.uri, old, new))
    if isinstance(value, Listing):
        return Listing(_renamed(value.objects, old, new), _renamed(value.hidden, old, new))
    if isinstance(value, list):
        return [_renamed(item, old, new) for item in value]
    return value
