"""Which attempts may read or write kept layers at the moment: each writes a mark, again and again.

The mark of an attempt that was killed counts too, until it is too old or, on the same machine,
its process is gone.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from types import TracebackType
from typing import Self

import psutil

from embertide.errors import EmbertideError
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.io.versions.layers.places import attempt_uri, key_uri

BEAT_SECONDS = 15.0
ALIVE_SECONDS = 60.0
"""Without a beat for so long, by the store's clock, an attempt is over."""

_log = logging.getLogger("embertide")


class Attempt:
    """Says that an attempt is running, from its first use of a key's layers to its end.

    Only one process of a run begins it. A store that refuses is a warning: others may then remove
    layers while they are read, which costs their computing again.
    """

    def __init__(self, storage: Storage, output_uri: str, key: str, version: str) -> None:
        self._storage, self._uri = storage, attempt_uri(output_uri, key, version)
        self._over, self._thread = threading.Event(), threading.Thread(target=self._beat)
        self._thread.daemon = True

    def begin(self) -> None:
        """Say it from now on; once is enough."""
        if self._thread.ident is None:
            self._say()
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread.ident is None:
            return
        self._over.set()
        self._thread.join()
        try:
            self._storage.delete([self._uri])
        except EmbertideError as failure:
            _log.warning("%s could not be removed: %s", self._uri, failure)

    def _beat(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self._say()

    def _say(self) -> None:
        process = psutil.Process()
        who = {"host": socket.gethostname(), "pid": process.pid, "began": process.create_time()}
        try:
            self._storage.write(self._uri, json.dumps(who).encode())
        except EmbertideError as error:
            _log.warning("%s could not be written: %s", self._uri, error)


def in_use(
    storage: Storage, output_uri: str, key: str, objects: list[ObjectInfo], now: float
) -> bool:
    """Whether an attempt may read or write a key's layers.

    Args:
        objects: all of the key, with the times of their last change.
        now: by the store's clock, in seconds since the epoch.
    """
    folder = f"{key_uri(output_uri, key)}/attempts/"
    marks = [info for info in objects if info.uri.startswith(folder)]
    return any(
        now - info.modified < ALIVE_SECONDS and not _is_gone(storage, info) for info in marks
    )


def _is_gone(storage: Storage, mark: ObjectInfo) -> bool:
    """Whether an attempt was a process of this machine that has ended."""
    try:
        who = json.loads(storage.read(mark.uri))
        if who["host"] != socket.gethostname():
            return False
        return bool(_began(who["pid"]) != who["began"])
    except (EmbertideError, ValueError, KeyError, TypeError):
        return False


def _began(pid: int) -> float | None:
    """When a process began; None where it has ended, though its parent has not noticed yet."""
    try:
        process = psutil.Process(pid)
        ended = process.status() == psutil.STATUS_ZOMBIE
        return None if ended else process.create_time()
    except psutil.NoSuchProcess:
        return None
