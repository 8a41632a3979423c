"""Leading and waiting: threads against a Lease in memory, which the API server would keep."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Lock, Thread
from typing import Any, cast

from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.transport import ApiError
from embertide_operator.config.settings import Settings
from embertide_operator.leadership.lease import Alone, ElectedLeadership, make_leadership
from tests.support.patience import WAIT_SECONDS

SETTINGS = Settings(
    own_namespace="tools", own_name="op", lease_seconds=120, renew_seconds=60.0, retry_seconds=0.05
)
"""No machine is so busy that a leader cannot renew in time."""
IMPATIENT = replace(SETTINGS, lease_seconds=4, renew_seconds=1.0)


class LeaseServer:
    """One Lease with a resourceVersion, as the API server keeps it; it can stop answering."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.writes = 0
        self.answers = Event()
        self.answers.set()
        self._lock = Lock()

    @property
    def holder(self) -> str:
        """Who holds the Lease."""
        return str((self.lease or {"spec": {}})["spec"].get("holderIdentity", ""))

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert (kind, namespace, name) == ("Lease", "tools", "op")
        self._reach()
        return copy.deepcopy(self.lease)

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return self._write(manifest, expected=None)

    def replace(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return self._write(manifest, expected=manifest["metadata"]["resourceVersion"])

    def _write(self, manifest: dict[str, Any], expected: str | None) -> dict[str, Any]:
        self._reach()
        with self._lock:
            known = self.lease["metadata"]["resourceVersion"] if self.lease else None
            if known != expected:
                raise ApiError(409, "changed")
            self.writes += 1
            written = copy.deepcopy(manifest)
            written["metadata"]["resourceVersion"] = str(self.writes)
            self.lease = written
            return copy.deepcopy(written)

    def put(self, lease: dict[str, Any] | None) -> None:
        """As somebody else does, who asks for no version."""
        with self._lock:
            self.lease = lease

    def _reach(self) -> None:
        if not self.answers.is_set():
            raise ApiError(503, "away")


class Replica:
    """A replica in threads of its own; ``lost`` is why it would have ended its process."""

    def __init__(self, server: LeaseServer, name: str, settings: Settings = SETTINGS) -> None:
        self.lost: list[str] = []
        api = cast(KubernetesApi, server)
        self.leadership = ElectedLeadership(api, settings, name, self.lost.append)
        self.waited: list[bool] = []
        self._thread = Thread(target=lambda: self.waited.append(self.leadership.wait()))
        self._thread.start()

    def end(self) -> None:
        self.leadership.stop_waiting()
        self._thread.join(WAIT_SECONDS)
        self.leadership.end()


@contextmanager
def replicas(
    server: LeaseServer, *names: str, settings: Settings = SETTINGS
) -> Iterator[list[Replica]]:
    made: list[Replica] = []
    try:
        for name in names:
            made.append(Replica(server, name, settings))
            eventually(lambda: server.holder)
        yield made
    finally:
        for replica in made:
            replica.end()


def eventually(condition: Callable[[], Any], seconds: float = WAIT_SECONDS) -> float:
    """Seconds until it is true."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "in vain"
        time.sleep(0.01)
    return time.monotonic() - began


def test_one_leads_and_the_other_waits() -> None:
    server = LeaseServer()
    with replicas(server, "a", "b") as (a, b):
        eventually(lambda: a.waited == [True])
        assert server.holder == "a"
        written = server.writes
        eventually(lambda: server.writes > written + 3)
        assert (a.leadership.leads, b.leadership.leads, b.waited) == (True, False, [])
        eventually(lambda: b.leadership.silent_seconds() < 1)


def test_the_next_leads_at_once_when_the_lease_is_given_back() -> None:
    server = LeaseServer()
    with replicas(server, "a", "b") as (a, b):
        eventually(lambda: a.waited == [True])
        a.end()
        assert not a.leadership.leads
        assert eventually(lambda: b.waited == [True]) < SETTINGS.lease_seconds
        assert server.holder == "b"
        assert a.lost == []


def test_a_leader_ends_when_it_cannot_renew_before_another_may_begin() -> None:
    server = LeaseServer()
    with replicas(server, "a", settings=IMPATIENT) as (a,):
        eventually(lambda: a.waited == [True])
        server.answers.clear()
        took = eventually(lambda: a.lost)
        assert took < IMPATIENT.lease_seconds
        assert a.lost == ["the Lease was not renewed for 1 s: this process ends"]
        server.answers.set()


def test_a_leader_whose_lease_another_holds_ends() -> None:
    server = LeaseServer()
    with replicas(server, "a") as (a,):
        eventually(lambda: a.waited == [True])
        assert server.lease is not None
        stolen = copy.deepcopy(server.lease)
        stolen["spec"]["holderIdentity"] = "b"
        stolen["metadata"]["resourceVersion"] = "stolen"
        server.put(stolen)
        eventually(lambda: a.lost)
        assert a.lost == ["b holds the Lease: this process ends"]


def test_a_lease_that_somebody_deleted_is_made_again() -> None:
    server = LeaseServer()
    with replicas(server, "a") as (a,):
        eventually(lambda: a.waited == [True])
        server.put(None)
        eventually(lambda: server.holder == "a")
        assert (a.leadership.leads, a.lost) == (True, [])


def test_one_that_waits_ends_when_told() -> None:
    server = LeaseServer()
    with replicas(server, "a", "b") as (_, b):
        b.end()
        assert b.waited == [False]
        assert server.holder == "a"


def test_without_a_name_a_process_is_alone() -> None:
    alone = make_leadership(cast(KubernetesApi, None), Settings())
    assert isinstance(alone, Alone)
    assert alone.leads
    assert alone.wait()
