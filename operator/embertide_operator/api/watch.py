"""Watches that fill the cache: list all objects, then follow their changes, for ever.

One thread for each kind and namespace. Everything that can go wrong with a watch ends in one of
two ways, neither of which ends the thread: a new watch from the last version, or a new list. A
connection that is dead without saying so is noticed, since the server ends each watch after a while
and one that is silent beyond that time is given up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from embertide_operator.api.backoff import Backoff
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.store import Store
from embertide_operator.api.transport import ApiError

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 15.0
_EXPIRED = 410
_RELIST_AFTER = 3
"""Failures in a row after which all objects are listed again, whatever the reason."""

log = logging.getLogger("embertide")


@dataclass
class Watch:
    """One list-and-watch loop.

    Attributes:
        labels: the selector that the server applies; "" for all objects.
        seconds: how long one watch lasts; a dead connection is noticed in little more.
        on_failure: called with the resource of each list or watch that failed.
    """

    api: KubernetesApi
    store: Store
    namespace: str
    labels: str
    seconds: int
    on_failure: Callable[[str], None] = lambda _: None
    _version: str = ""
    _failures: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)
    _pauses: Backoff[str] = field(
        default_factory=lambda: Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
    )

    def start(self) -> None:
        """Begin, in a thread that ends with the process."""
        name = f"watch {self.store.kind} {self.namespace}".rstrip()
        threading.Thread(target=self.run, name=name, daemon=True).start()

    def stop(self) -> None:
        """End after the next event."""
        self._stopped.set()

    def run(self) -> None:
        """List and watch until stopped."""
        while not self._stopped.is_set():
            try:
                if self._version:
                    self._follow()
                else:
                    self._list()
                self._failures = 0
                self._pauses.reset(self.namespace)
            except ApiError as error:
                self._failed(error)
            except Exception:
                # Whatever it was: what is known now may be wrong, so all is listed again.
                self._version = ""
                log.exception("the watch of %s failed and begins again", self.store.kind)
                self._pause()

    def _list(self) -> None:
        items, version = self.api.read_all(self.store.kind, self.namespace, labels=self.labels)
        self.store.replace(self.namespace, items, version)
        self._version = version

    def _follow(self) -> None:
        """One watch from the last version to its end."""
        events = self.api.watch(
            self.store.kind, self.namespace, self._version, self.seconds, labels=self.labels
        )
        for kind, item in events:
            if self._stopped.is_set():
                return
            self.store.event(self.namespace, kind, {**item, "kind": self.store.kind})
            self._version = item["metadata"]["resourceVersion"]
        self.store.note_alive(self.namespace)

    def _failed(self, error: ApiError) -> None:
        """Make the next watch from the last version, or a list where that is too old."""
        self._failures += 1
        if error.code == _EXPIRED or self._failures % _RELIST_AFTER == 0:
            self._version = ""
        if error.code != _EXPIRED:
            log.warning("the watch of %s failed and is made again: %s", self.store.kind, error)
        self._pause()

    def _pause(self) -> None:
        self.on_failure(self.store.kind)
        self._stopped.wait(self._pauses.next(self.namespace))
