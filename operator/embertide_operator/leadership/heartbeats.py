"""Heartbeats in the namespaces with jobs: this operator's are renewed, others' are read.

Its own is written by a patch, whose answer has those of all others: one request for a namespace and
a quarter of ``claim_seconds``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from embertide.spec.naming import FIELD_MANAGER
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import Object
from embertide_operator.api.transport import ApiError
from embertide_operator.config.settings import Settings
from embertide_operator.job.observe import is_managed_elsewhere
from embertide_operator.job.ownership import (
    CONFIG_MAP,
    Heartbeat,
    HeartbeatRecord,
    claimant,
    class_of,
    data_key,
    from_data,
    is_free,
    new_heartbeat,
    overlapping,
    to_data,
)

_BEATS = 4
"""Heartbeats in ``claim_seconds``."""

log = logging.getLogger("embertide")


class Ownership:
    """Which jobs are this operator's, by the heartbeats of all operators; thread-safe.

    Attributes:
        overlaps: the namespaces in which another operator would take the same jobs, by operator.
    """

    def __init__(
        self,
        api: KubernetesApi,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._settings, self._clock = api, settings, clock
        self._lock = threading.Lock()
        self._namespaces = set(settings.namespaces)
        self._records: dict[tuple[str, str], HeartbeatRecord] = {}  # by namespace and operator
        self._troubles: dict[str, str] = {}  # by namespace
        self.overlaps: dict[str, set[str]] = {}
        self.period_seconds = settings.claim_seconds / _BEATS

    def is_ours(self, job: Object) -> bool:
        """Whether a job is this operator's, or has no operator yet."""
        if class_of(job) != self._settings.operator_class or is_managed_elsewhere(job):
            return False
        return claimant(job) in ("", self._settings.identity)

    def postponed(self, job: Object, statefulset: Object | None = None) -> float | None:
        """Seconds after which to ask again for another operator's job; None for this operator's.

        Infinity for a job of another class or controller, which comes back when it changes.
        """
        if class_of(job) != self._settings.operator_class or is_managed_elsewhere(job):
            return float("inf")
        other = claimant(job, statefulset)
        if other in ("", self._settings.identity):
            return None
        namespace = job["metadata"]["namespace"]
        with self._lock:
            self._namespaces.add(namespace)
            now = self._clock()
            record = self._records.setdefault((namespace, other), HeartbeatRecord(None, now, now))
        if is_free(job, record, self._settings.claim_seconds):
            return None
        return self.period_seconds

    def cover(self, jobs: Iterable[Object]) -> None:
        """Renew heartbeats in the namespaces of these jobs, which are all, and the watched ones."""
        with self._lock:
            self._namespaces = {job["metadata"]["namespace"] for job in jobs}
            self._namespaces |= set(self._settings.namespaces)

    def beat(self) -> None:
        """Renew the heartbeat in every namespace, and read those of others. Blocking."""
        with self._lock:
            namespaces = sorted(self._namespaces)
        for namespace in namespaces:
            own = self._own_heartbeat()
            try:
                data = self._renew(namespace, own)
            except ApiError as error:
                self._log_trouble(namespace, error)
                continue
            self._troubles.pop(namespace, None)
            heartbeats = from_data(data)
            heartbeats.pop(own.operator, None)
            with self._lock:
                self._note(namespace, heartbeats)
                self._note_overlaps(namespace, heartbeats, own)

    def _own_heartbeat(self) -> Heartbeat:
        settings = self._settings
        watches = ", ".join(settings.namespaces) or "all namespaces"
        return new_heartbeat(settings.identity, settings.operator_class, watches, datetime.now(UTC))

    def _renew(self, namespace: str, own: Heartbeat) -> dict[str, str]:
        """The ConfigMap's data, with this operator's heartbeat renewed if it has a name."""
        if not own.operator:
            return (self._api.get("ConfigMap", namespace, CONFIG_MAP) or {}).get("data") or {}
        removed = dict.fromkeys(map(data_key, self._forget(namespace)))
        try:
            written = self._api.patch_data(namespace, CONFIG_MAP, {**removed, **to_data(own)})
        except ApiError as error:
            if error.code != 404:
                raise
            written = self._api.create(_config_map(namespace, own))
        return written.get("data") or {}

    def _forget(self, namespace: str) -> list[str]:
        """Drop the operators that have been gone for long; returns them."""
        long = 2 * self._settings.claim_seconds
        with self._lock:
            gone = [
                key
                for key, record in self._records.items()
                if key[0] == namespace and record.is_gone(long)
            ]
            for key in gone:
                del self._records[key]
        return [operator for _, operator in gone]

    def _note(self, namespace: str, heartbeats: dict[str, Heartbeat]) -> None:
        """Keep what the operators of a namespace say now, and since when they say so."""
        now = self._clock()
        asked = {operator for place, operator in self._records if place == namespace}
        for operator in asked | heartbeats.keys():
            key, heartbeat = (namespace, operator), heartbeats.get(operator)
            old = self._records.get(key)
            if old is None or (heartbeat is not None and heartbeat != old.heartbeat):
                self._records[key] = HeartbeatRecord(heartbeat, now, now)
            else:
                self._records[key] = replace(old, heartbeat=heartbeat, read=now)

    def _note_overlaps(
        self, namespace: str, heartbeats: dict[str, Heartbeat], own: Heartbeat
    ) -> None:
        """Keep who would take the same jobs; say so when that begins or ends."""
        found = overlapping(heartbeats, own, datetime.now(UTC), self._settings.claim_seconds)
        for heartbeat in found:
            places = self.overlaps.setdefault(heartbeat.operator, set())
            if not places:
                log.warning(
                    "operator %s, which watches %s, takes the same jobs as this one, such as in"
                    " namespace %s: each job stays with the operator that took it first; set other"
                    " watchNamespaces or another operator.class for one of them",
                    *(heartbeat.operator, heartbeat.watches, namespace),
                )
            places.add(namespace)
        for operator in self.overlaps.keys() - {heartbeat.operator for heartbeat in found}:
            self.overlaps[operator].discard(namespace)
            if not self.overlaps[operator]:
                del self.overlaps[operator]
                log.info("operator %s takes the same jobs no longer", operator)

    def _log_trouble(self, namespace: str, error: ApiError) -> None:
        """Log once why no heartbeat can be written; a namespace that is deleted needs none."""
        text = str(error)
        if error.code != 404 and self._troubles.get(namespace) != text:
            self._troubles[namespace] = text
            log.warning("ConfigMap %s/%s: %s", namespace, CONFIG_MAP, text)


def _config_map(namespace: str, own: Heartbeat) -> Object:
    meta = {
        "name": CONFIG_MAP,
        "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": to_data(own)}
