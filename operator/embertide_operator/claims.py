"""Signs of life in the namespaces with jobs: this operator's are renewed, others' are read.

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
from embertide_operator.kubernetes_api import KubernetesApi
from embertide_operator.observe import is_managed_elsewhere
from embertide_operator.ownership import (
    CONFIG_MAP,
    Sighting,
    SignOfLife,
    claimant,
    class_of,
    data_key,
    from_data,
    is_free,
    overlapping,
    sign_of_life,
    to_data,
)
from embertide_operator.routes import Object
from embertide_operator.settings import Settings
from embertide_operator.transport import ApiError

_BEATS = 4
"""Signs of life in ``claim_seconds``."""

log = logging.getLogger("embertide")


class Claims:
    """Which jobs are this operator's; thread-safe.

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
        self._sightings: dict[tuple[str, str], Sighting] = {}  # by namespace and operator
        self._troubles: dict[str, str] = {}  # by namespace
        self.overlaps: dict[str, set[str]] = {}
        self.period_seconds = settings.claim_seconds / _BEATS

    def is_ours(self, job: Object) -> bool:
        """Whether a job is this operator's or nobody's yet."""
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
            sighting = self._sightings.setdefault((namespace, other), Sighting(None, now, now))
        if is_free(job, sighting, self._settings.claim_seconds):
            return None
        return self.period_seconds

    def look_after(self, jobs: Iterable[Object]) -> None:
        """These are all jobs: show life in their namespaces and those that are watched."""
        with self._lock:
            self._namespaces = {job["metadata"]["namespace"] for job in jobs}
            self._namespaces |= set(self._settings.namespaces)

    def beat(self) -> None:
        """Show life in every namespace, and read what others say there. Blocking."""
        with self._lock:
            namespaces = sorted(self._namespaces)
        for namespace in namespaces:
            own = self._own_sign()
            try:
                data = self._renew(namespace, own)
            except ApiError as error:
                self._tell_trouble(namespace, error)
                continue
            self._troubles.pop(namespace, None)
            signs = from_data(data)
            signs.pop(own.operator, None)
            with self._lock:
                self._note(namespace, signs)
                self._note_overlaps(namespace, signs, own)

    def _own_sign(self) -> SignOfLife:
        settings = self._settings
        watches = ", ".join(settings.namespaces) or "all namespaces"
        return sign_of_life(settings.identity, settings.operator_class, watches, datetime.now(UTC))

    def _renew(self, namespace: str, own: SignOfLife) -> dict[str, str]:
        """The ConfigMap's data, with this operator's sign of life renewed if it has a name."""
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
                for key, sighting in self._sightings.items()
                if key[0] == namespace and sighting.is_gone(long)
            ]
            for key in gone:
                del self._sightings[key]
        return [operator for _, operator in gone]

    def _note(self, namespace: str, signs: dict[str, SignOfLife]) -> None:
        """Keep what the operators of a namespace say now, and since when they say so."""
        now = self._clock()
        asked = {operator for place, operator in self._sightings if place == namespace}
        for operator in asked | signs.keys():
            key, sign = (namespace, operator), signs.get(operator)
            old = self._sightings.get(key)
            if old is None or (sign is not None and sign != old.sign):
                self._sightings[key] = Sighting(sign, now, now)
            else:
                self._sightings[key] = replace(old, sign=sign, read=now)

    def _note_overlaps(self, namespace: str, signs: dict[str, SignOfLife], own: SignOfLife) -> None:
        """Keep who would take the same jobs; say so when that begins or ends."""
        found = overlapping(signs, own, datetime.now(UTC), self._settings.claim_seconds)
        for sign in found:
            places = self.overlaps.setdefault(sign.operator, set())
            if not places:
                log.warning(
                    "operator %s, which watches %s, takes the same jobs as this one, such as in"
                    " namespace %s: each job stays with the operator that took it first; set other"
                    " watchNamespaces or another operator.class for one of them",
                    *(sign.operator, sign.watches, namespace),
                )
            places.add(namespace)
        for operator in self.overlaps.keys() - {sign.operator for sign in found}:
            self.overlaps[operator].discard(namespace)
            if not self.overlaps[operator]:
                del self.overlaps[operator]
                log.info("operator %s takes the same jobs no longer", operator)

    def _tell_trouble(self, namespace: str, error: ApiError) -> None:
        """Log once why no life can be shown in a namespace; one that is deleted needs none."""
        text = str(error)
        if error.code != 404 and self._troubles.get(namespace) != text:
            self._troubles[namespace] = text
            log.warning("ConfigMap %s/%s: %s", namespace, CONFIG_MAP, text)


def _config_map(namespace: str, own: SignOfLife) -> Object:
    meta = {
        "name": CONFIG_MAP,
        "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": to_data(own)}
