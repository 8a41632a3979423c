"""The objects that passes read: kept in memory by watches, and never older than our own writes.

A cache may lag behind the API server. Two rules make that harmless. What this operator itself wrote
is put into the cache with the answer to the write, so no pass acts on an object older than that.
And a decision that does more than report progress is made again from the API itself
(``runtime/passes.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from embertide.spec.naming import LABEL_JOB
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import Object, kind_of
from embertide_operator.api.store import OnChange, Store, job_of
from embertide_operator.api.watch import Watch

_EVENTS_SECONDS = 5.0


class NotCached(Exception):
    """Something has to be read from the API, for which there is no watch."""


class Cache:
    """The stores of all kinds, as a source for :func:`embertide_operator.job.observe.observe`.

    Args:
        namespaces: those to watch; none means all.
        kinds: of the jobs' children.
        on_change: see :data:`OnChange`.
    """

    def __init__(
        self,
        api: KubernetesApi,
        namespaces: tuple[str, ...],
        kinds: Iterable[str],
        on_change: OnChange,
    ) -> None:
        self._api = api
        # Each with the selector that the API server applies.
        self._selectors = {"EmbeddingJob": "", "Pod": LABEL_JOB} | dict.fromkeys(kinds, LABEL_JOB)
        self.stores = {kind: Store(kind, on_change) for kind in self._selectors}
        self._places = namespaces or ("",)
        for store in self.stores.values():
            for namespace in self._places:
                store.add_scope(namespace)
        self._watches: list[Watch] = []
        self._began = time.monotonic()
        self._events: dict[tuple[str, str], tuple[float, list[Object]]] = {}

    def start(self, seconds: float, on_failure: Callable[[str], None]) -> None:
        """Begin to watch, once; each watch lasts for so many seconds and is then made again."""
        if self._watches:
            return
        self._began = time.monotonic()
        lasting = max(1, round(seconds))
        self._watches = [
            Watch(self._api, store, namespace, self._selectors[kind], lasting, on_failure)
            for kind, store in self.stores.items()
            for namespace in self._places
        ]
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        """End all watches."""
        for watch in self._watches:
            watch.stop()
        self._watches = []

    @property
    def synced(self) -> bool:
        """Whether everything has been read once."""
        return all(store.synced for store in self.stores.values())

    def silence(self) -> tuple[float, str]:
        """(seconds, kind) of the watch for which the API server has been silent for longest."""
        return max((store.silence(self._began), kind) for kind, store in self.stores.items())

    def jobs(self) -> list[Object]:
        """All EmbeddingJobs."""
        return self.stores["EmbeddingJob"].all()

    def written(self, item: Object) -> None:
        """The API server's answer to a write or a read of ours."""
        self.stores[kind_of(item)].written(item)

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """One object; None where none is known."""
        return self.stores[kind].get(namespace, name)

    def pods(self, namespace: str, job: str) -> list[Object]:
        """The pods with the label of a job of this name."""
        return self.stores["Pod"].of_job(namespace, job)

    def events_about(self, namespace: str, uid: str, reason: str) -> list[Object]:  # noqa: ARG002
        """The Events about an object with this reason, as they were read a few seconds ago.

        Raises:
            NotCached: they were not.
        """
        until, events = self._events.get((uid, reason), (0.0, []))
        if until < time.monotonic():
            raise NotCached
        return events

    def events_about_pod(self, namespace: str, name: str) -> list[Object]:
        """Events of pods are not kept: always raises NotCached."""
        raise NotCached(namespace, name)

    def keep_events(self, uid: str, reason: str, events: list[Object]) -> None:
        """These were just read."""
        now = time.monotonic()
        known = {at: found for at, found in self._events.copy().items() if found[0] > now}
        self._events = known | {(uid, reason): (now + _EVENTS_SECONDS, events)}


class ReadThrough:
    """The same source, but all is read from the API and put into the cache."""

    def __init__(self, api: KubernetesApi, cache: Cache) -> None:
        self._api, self._cache = api, cache

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """One object; None where it does not exist."""
        found = self._api.get(kind, namespace, name)
        # What has no label of a job is not ours to keep.
        if found is not None and (kind == "EmbeddingJob" or job_of(found)[1]):
            self._cache.written(found)
        return found

    def pods(self, namespace: str, job: str) -> list[Object]:
        """The pods with the label of a job of this name."""
        found = self._api.pods(namespace, job)
        for pod in found:
            self._cache.written(pod)
        return found

    def events_about(self, namespace: str, uid: str, reason: str) -> list[Object]:
        """The Events about an object with this reason."""
        found = self._api.events_about(namespace, uid, reason)
        self._cache.keep_events(uid, reason, found)
        return found

    def events_about_pod(self, namespace: str, name: str) -> list[Object]:
        """The Events about a pod and those of its name before it."""
        return self._api.events_about_pod(namespace, name)
