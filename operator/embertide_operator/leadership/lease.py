"""Leads or waits: the election against the Lease in the operator's own namespace.

It runs in threads of its own, so neither a busy event loop nor a full pool of threads delays a
renewal. The Lease has the operator's name; its holder is the name of a pod. A container that is
started again in the same pod goes on with its Lease at once: Kubernetes starts it only after the
one before has ended.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event, Lock, Thread
from typing import NoReturn, Protocol

from embertide.spec.naming import FIELD_MANAGER
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import Object
from embertide_operator.api.transport import ApiError
from embertide_operator.config.settings import Settings
from embertide_operator.leadership.election import Election, Terms

log = logging.getLogger("embertide")


class Leadership(Protocol):
    """Whether this process is the one that reconciles jobs."""

    @property
    def leads(self) -> bool:
        """Whether it leads now; any thread may ask."""

    def silent_seconds(self) -> float:
        """Seconds since it was last known who leads."""

    def wait(self) -> bool:
        """Return when this process leads (True) or was asked to end (False)."""

    def stop_waiting(self) -> None:
        """End :meth:`wait`; a signal handler may call."""

    def end(self) -> None:
        """Give the Lease back. The caller writes nothing any more."""


def make_leadership(api: KubernetesApi, settings: Settings) -> Leadership:
    """By election; a process that is no pod of a Deployment leads without one."""
    if not settings.identity:
        return Alone()
    return ElectedLeadership(api, settings, os.uname().nodename)


class Alone:
    """The leadership of a process that has no replicas."""

    leads = True

    def silent_seconds(self) -> float:
        """Never silent."""
        return 0.0

    def wait(self) -> bool:
        """It leads at once."""
        return True

    def stop_waiting(self) -> None:
        """It never waits."""

    def end(self) -> None:
        """There is nothing to give back."""


def end_process(message: str) -> NoReturn:
    """End at once, without a clean-up that might still write."""
    log.error("%s", message)
    logging.shutdown()
    os._exit(1)


class ElectedLeadership:
    """The leadership of one replica. Start it by :meth:`wait`.

    Args:
        api: of its own, whose requests end well before the renew deadline.
        identity: of this replica among the others.
        on_lost: must not return before this process can no longer write.
    """

    def __init__(
        self,
        api: KubernetesApi,
        settings: Settings,
        identity: str,
        on_lost: Callable[[str], None] = end_process,
    ) -> None:
        self._api, self._settings, self._on_lost = api, settings, on_lost
        self._election = Election(identity, Terms(settings.lease_seconds, settings.renew_seconds))
        self._lease: Object = {}
        self._lock = Lock()  # of the election
        self._decided, self._ending = Event(), Event()
        self._answered = time.monotonic()
        self._elector = Thread(target=self._elect, name="election", daemon=True)
        self._guard = Thread(target=self._watch_deadline, name="deadline", daemon=True)

    @property
    def leads(self) -> bool:
        """Whether this replica holds the Lease."""
        return self._election.leads

    def silent_seconds(self) -> float:
        """Seconds since the Lease was last read or written."""
        return time.monotonic() - self._answered

    def wait(self) -> bool:
        """Return when this replica leads (True) or was asked to end (False)."""
        self._elector.start()
        self._decided.wait()
        if self.leads:
            self._guard.start()
        return self.leads

    def stop_waiting(self) -> None:
        """End :meth:`wait`; a signal handler may call."""
        self._decided.set()

    def end(self) -> None:
        """Give the Lease back, if this replica holds it and its last request was answered."""
        self._ending.set()
        self._elector.join(self._settings.renew_seconds)
        with self._lock:
            if not self._election.leads or not self._lease or self._elector.is_alive():
                return
            self._election.leads = False
            spec = self._election.released(datetime.now(UTC))
        try:
            self._api.replace(self._lease | {"spec": spec})
        except ApiError as error:
            log.warning("cannot give the Lease back, so the next leader waits: %s", error)
        else:
            log.info("gave the Lease back")

    def _elect(self) -> None:
        while not self._ending.is_set():
            led, holder = self.leads, self._election.holder
            try:
                self._try()
                self._answered = time.monotonic()
            except ApiError as error:
                # Another candidate's write in between is no trouble: it is seen the next time.
                if not error.conflict:
                    log.warning("Lease %s: %s", self._settings.identity, error)
                self._lease = {}
            self._tell(led, holder)
            # Not all at the same moment, or candidates would meet in every write.
            self._ending.wait(self._settings.retry_seconds * random.uniform(0.8, 1.2))

    def _try(self) -> None:
        """One attempt to renew the Lease or to get it."""
        asked_at = time.monotonic()
        # A leader knows the Lease and writes at once; all others read it first.
        if not (self.leads and self._lease):
            namespace, name = self._settings.own_namespace, self._settings.own_name
            self._lease = self._api.get("Lease", namespace, name) or {}
            self._see(time.monotonic())
            asked_at = time.monotonic()
        spec = self._election.bid(asked_at, datetime.now(UTC))
        if spec is None:
            return
        if self._lease:
            self._lease = self._api.replace(self._lease | {"spec": spec})
        else:
            self._lease = self._api.create(self._new_lease(spec))
        with self._lock:
            self._election.won(self._lease["spec"], asked_at)

    def _see(self, at: float) -> None:
        with self._lock:
            self._election.see(self._lease.get("spec") or {}, at)

    def _tell(self, led: bool, holder: str) -> None:
        """Log who leads where that has changed; act on it."""
        if self.leads and not led:
            log.info("this replica leads")
            self._decided.set()
        elif led and not self.leads:
            leader = self._election.holder or "no process"
            self._on_lost(f"{leader} holds the Lease: this process ends")
        elif not self.leads and self._election.holder != holder:
            log.info("%s leads", self._election.holder or "no process")

    def _watch_deadline(self) -> None:
        """End a leader that could not renew, also while a request of it hangs."""
        while True:
            with self._lock:
                left = self._election.deadline() - time.monotonic()
                if not self._election.leads:
                    return
            if left <= 0:
                seconds = self._settings.renew_seconds
                self._on_lost(f"the Lease was not renewed for {seconds:g} s: this process ends")
                return
            time.sleep(left)

    def _new_lease(self, spec: Object) -> Object:
        meta = {
            "name": self._settings.own_name,
            "namespace": self._settings.own_namespace,
            "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER},
        }
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": meta,
            "spec": spec,
        }
