"""The objects of one kind, as watches and our own writes have reported them.

Of two versions of an object the one with the higher resource version stays, whatever came first.
Resource versions of one resource are numbers that grow, which Kubernetes promises since 1.35 and
always kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from embertide.spec.naming import LABEL_JOB
from embertide_operator.api.routes import Object

Name = tuple[str, str]
"""Namespace and name of an object."""
OnChange = Callable[[str, Object | None, Object | None], None]
"""Called at every change, in any thread: kind, the object before and after; None is absence."""


def version_of(item: Object) -> int:
    """An object's resource version, as a number; 0 where it has none."""
    text = str(item["metadata"].get("resourceVersion") or "")
    return int(text) if text.isdigit() else 0


def name_of(item: Object) -> Name:
    """Namespace and name."""
    return item["metadata"]["namespace"], item["metadata"]["name"]


def slim(item: Object) -> Object:
    """The object without ``managedFields``, which are often half of it and nothing here reads."""
    meta = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    return {**item, "metadata": meta}


@dataclass
class _Scope:
    """What one watch has reported, of one kind in one namespace ("" for all).

    Attributes:
        version: that of the newest event; all before it is known.
        alive_at: monotonic time of the last message from the API server; None before the first.
    """

    version: int = 0
    alive_at: float | None = None


@dataclass
class Store:
    """The objects of one kind; thread-safe. Objects that it gives are shared: never change them."""

    kind: str
    on_change: OnChange
    _scopes: dict[str, _Scope] = field(default_factory=dict)
    _items: dict[Name, Object] = field(default_factory=dict)
    _by_job: dict[Name, set[Name]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def add_scope(self, namespace: str) -> None:
        """Objects of this namespace ("" for all) will come."""
        self._scopes[namespace] = _Scope()

    def get(self, namespace: str, name: str) -> Object | None:
        """One object."""
        return self._items.get((namespace, name))

    def of_job(self, namespace: str, job: str) -> list[Object]:
        """The objects with the label of a job of this name."""
        with self._lock:
            return [self._items[name] for name in sorted(self._by_job.get((namespace, job), ()))]

    def all(self) -> list[Object]:
        """All objects."""
        with self._lock:
            return list(self._items.values())

    def written(self, item: Object) -> None:
        """The API server's answer to a write or a read of ours."""
        with self._lock:
            # What a watch has already reported is here, or deleted since.
            if version_of(item) > self._scope_of(item).version:
                self._put(slim(item))

    def event(self, namespace: str, kind: str, item: Object) -> None:
        """An event of the watch of a namespace."""
        with self._lock:
            scope = self._scopes[namespace]
            scope.version = max(scope.version, version_of(item))
            scope.alive_at = time.monotonic()
            if kind == "DELETED":
                self._remove(name_of(item), version_of(item))
            elif kind != "BOOKMARK":
                self._put(slim(item))

    def replace(self, namespace: str, items: Iterable[Object], version: str) -> None:
        """All objects of a namespace, at a version; those that are not among them are gone.

        A list is never older than what was known before, unless the cluster's storage was restored
        from a backup: then all that was known is forgotten.
        """
        with self._lock:
            found = {name_of(item): slim(item) for item in items}
            scope = self._scopes[namespace]
            restored = int(version) < scope.version
            known = [name for name in self._items if not namespace or name[0] == namespace]
            for name in known:
                if restored:
                    self._remove(name, version_of(self._items[name]))
                elif name not in found:
                    self._remove(name, int(version))
            if restored:
                scope.version = 0
            for item in found.values():
                self._put(item)
            scope.version = max(scope.version, int(version))
            scope.alive_at = time.monotonic()

    def note_alive(self, namespace: str) -> None:
        """The API server has sent something to this watch."""
        self._scopes[namespace].alive_at = time.monotonic()

    @property
    def synced(self) -> bool:
        """Whether all objects have been read once."""
        return all(scope.alive_at is not None for scope in self._scopes.values())

    def silence(self, since: float) -> float:
        """Seconds since the watch that is silent for longest heard of the API server.

        Args:
            since: monotonic time that counts for a watch that has never heard of it.
        """
        alive = [scope.alive_at or since for scope in self._scopes.values()]
        return time.monotonic() - min(alive, default=time.monotonic())

    def _scope_of(self, item: Object) -> _Scope:
        namespace = item["metadata"]["namespace"]
        return self._scopes.get(namespace) or self._scopes.get("") or _Scope()

    def _put(self, item: Object) -> None:
        name = name_of(item)
        before = self._items.get(name)
        if before is not None and version_of(before) >= version_of(item):
            return
        self._items[name] = item
        if before is not None:
            self._unlink(name, before)
        self._by_job.setdefault(job_of(item), set()).add(name)
        self.on_change(self.kind, before, item)

    def _remove(self, name: Name, version: int) -> None:
        before = self._items.get(name)
        if before is None or version_of(before) > version:
            return
        del self._items[name]
        self._unlink(name, before)
        self.on_change(self.kind, before, None)

    def _unlink(self, name: Name, item: Object) -> None:
        names = self._by_job.get(job_of(item), set())
        names.discard(name)
        if not names:
            self._by_job.pop(job_of(item), None)


def job_of(item: Object) -> Name:
    """Namespace and name of the job in an object's label; the name is "" without one."""
    labels = item["metadata"].get("labels") or {}
    return item["metadata"]["namespace"], labels.get(LABEL_JOB, "")
