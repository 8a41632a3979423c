"""To which of several operators a job belongs."""

from __future__ import annotations

import copy
import logging
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.transport import ApiError
from embertide_operator.config.settings import Settings
from embertide_operator.decide.reconcile import decide
from embertide_operator.job.ownership import (
    CONFIG_MAP,
    OPERATOR,
    Heartbeat,
    HeartbeatRecord,
    claimant,
    data_key,
    from_data,
    is_free,
    to_data,
)
from embertide_operator.leadership.heartbeats import Ownership
from tests.support.operator_world import NOW, SETTINGS, Observed, World, raw_job

ALIVE = Heartbeat("a/op", "", "all namespaces", "2026-11-21T12:00:00Z")


def job(operator: str = "", operator_class: str | None = None) -> dict[str, Any]:
    made = raw_job() if operator_class is None else raw_job(operatorClass=operator_class)
    return made | {"status": {"operator": operator} if operator else {}}


class Namespaces:
    """ConfigMaps as the API server keeps them, one namespace each; some may refuse."""

    def __init__(self) -> None:
        self.data: dict[str, dict[str, str]] = {}
        self.refused: set[str] = set()
        self.requests = 0

    def patch_data(self, namespace: str, name: str, data: dict[str, str | None]) -> Any:
        self._ask(namespace, name)
        if namespace not in self.data:
            raise ApiError(404, "not found")
        merged = self.data[namespace] | data
        self.data[namespace] = {k: v for k, v in merged.items() if v is not None}
        return {"data": dict(self.data[namespace])}

    def create(self, manifest: dict[str, Any]) -> Any:
        meta = manifest["metadata"]
        self._ask(meta["namespace"], meta["name"])
        self.data[meta["namespace"]] = dict(manifest["data"])
        return copy.deepcopy(manifest)

    def get(self, kind: str, namespace: str, name: str) -> Any:
        assert kind == "ConfigMap"
        self._ask(namespace, name)
        return {"data": dict(self.data[namespace])} if namespace in self.data else None

    def _ask(self, namespace: str, name: str) -> None:
        assert name == CONFIG_MAP
        self.requests += 1
        if namespace in self.refused:
            raise ApiError(503, "away")


class Operator:
    """The ownership of one operator, by a clock that the test sets."""

    def __init__(self, server: Namespaces, name: str, **settings: Any) -> None:
        self.now = 0.0
        self.settings = Settings(own_namespace=name, own_name="op", claim_seconds=90, **settings)
        api = cast(KubernetesApi, server)
        self.ownership = Ownership(api, self.settings, lambda: self.now)

    def live(self, seconds: float) -> None:
        """Time passes with heartbeats."""
        while seconds > 0:
            self.now += min(seconds, self.ownership.period_seconds)
            seconds -= self.ownership.period_seconds
            self.ownership.beat()


def test_the_first_status_of_a_job_names_its_operator() -> None:
    settings = Settings(image="x", own_namespace="a", own_name="op")
    decision = decide(Observed(raw_job()), settings, NOW)
    assert decision.draft["operator"] == "a/op"
    assert "TakenOver" not in [event.reason for event in decision.draft.events]
    (statefulset,) = (c for c in decision.apply if c["kind"] == "StatefulSet")
    assert statefulset["metadata"]["annotations"][OPERATOR] == "a/op"


def test_an_operator_without_a_name_claims_nothing() -> None:
    world = World()
    world.reconcile()
    assert "operator" not in world.status
    annotations = world.seen.children["StatefulSet"]["metadata"]["annotations"]
    assert OPERATOR not in annotations


def test_a_job_that_is_taken_over_goes_on_with_the_same_attempt() -> None:
    world = World()
    world.reconcile()
    before = copy.deepcopy(world.status)
    world.job["status"]["operator"] = "old/op"
    settings = Settings(image=SETTINGS.image, own_namespace="a", own_name="op")
    seen = Observed(world.job, children=world.seen.children)
    decision = decide(seen, settings, NOW)
    assert decision.draft["operator"] == "a/op"
    (event,) = (e for e in decision.draft.events if e.reason == "TakenOver")
    assert "old/op" in event.message
    assert (decision.draft["attempt"], decision.draft["versions"]) == (1, before["versions"])
    assert decision.scale_to_zero is None


def test_a_job_is_of_the_operator_with_its_class() -> None:
    namespaces = Namespaces()
    default, gpu = Operator(namespaces, "a"), Operator(namespaces, "b", operator_class="gpu")
    for operator, own, foreign in ((default, None, "gpu"), (gpu, "gpu", None)):
        assert operator.ownership.postponed(job(operator_class=own)) is None
        assert operator.ownership.is_ours(job(operator_class=own))
        assert operator.ownership.postponed(job(operator_class=foreign)) == float("inf")
        assert not operator.ownership.is_ours(job(operator_class=foreign))


def test_a_claimed_job_is_left_alone_while_its_operator_lives() -> None:
    namespaces = Namespaces()
    a, b = Operator(namespaces, "a"), Operator(namespaces, "b")
    claimed = job("a/op")
    assert a.ownership.postponed(claimed) is None
    for _ in range(20):
        assert b.ownership.postponed(claimed) == b.ownership.period_seconds
        assert not b.ownership.is_ours(claimed)
        a.ownership.cover([claimed])
        a.ownership.beat()
        b.live(b.ownership.period_seconds)


def test_a_job_is_taken_over_once_its_operator_has_shown_no_life() -> None:
    namespaces = Namespaces()
    a, b = Operator(namespaces, "a"), Operator(namespaces, "b")
    claimed = job("a/op")
    a.ownership.cover([claimed])
    a.ownership.beat()
    assert b.ownership.postponed(claimed) is not None
    b.live(100)
    # Since its heartbeat was first seen, which is a beat after the job was.
    waited = b.now
    while b.ownership.postponed(claimed) is not None:
        b.live(b.ownership.period_seconds)
    assert 90 <= b.now <= waited + 90
    b.live(200)
    assert data_key("a/op") not in namespaces.data["shop"], "what is gone is removed"


def test_an_operator_that_never_showed_life_is_waited_for_as_long() -> None:
    """As one that has been uninstalled with all of its namespace."""
    b = Operator(Namespaces(), "b")
    claimed = job("a/op")
    assert b.ownership.postponed(claimed) is not None
    b.live(80)
    assert b.ownership.postponed(claimed) is not None
    b.live(20)
    assert b.ownership.postponed(claimed) is None


def test_nobody_is_taken_for_gone_while_the_api_server_is_away() -> None:
    """A partition must not make both sides believe that the other is dead."""
    namespaces = Namespaces()
    b = Operator(namespaces, "b")
    claimed = job("a/op")
    assert b.ownership.postponed(claimed) is not None
    namespaces.refused.add("shop")
    b.live(1000)
    assert b.ownership.postponed(claimed) is not None


def test_a_job_that_changes_its_class_changes_its_operator() -> None:
    """At once, as the heartbeat of the operator before says that the class is not its own."""
    namespaces = Namespaces()
    a, gpu = Operator(namespaces, "a"), Operator(namespaces, "b", operator_class="gpu")
    moved = job("a/op", "gpu")
    assert a.ownership.postponed(moved) == float("inf")
    a.ownership.cover([moved])
    a.ownership.beat()
    assert gpu.ownership.postponed(moved) is not None, "nothing is known of its operator yet"
    gpu.live(1)
    assert gpu.ownership.postponed(moved) is None


def test_a_job_without_a_status_belongs_to_who_applied_its_statefulset() -> None:
    """As after a backup was restored, or somebody emptied the status."""
    settings = Settings(image="x", own_namespace="a", own_name="op")
    found = decide(Observed(raw_job()), settings, NOW).apply[-1]
    assert found["kind"] == "StatefulSet"
    assert claimant(job(), found) == "a/op"
    assert claimant(job("b/op"), found) == "b/op", "the status is newer"
    b = Operator(Namespaces(), "b")
    assert b.ownership.postponed(job()) is None
    assert b.ownership.postponed(job(), found) is not None


def test_a_status_from_before_claims_is_nobodys() -> None:
    world = World()
    world.reconcile()
    assert claimant(world.job, world.seen.children["StatefulSet"]) == ""


def test_life_is_shown_by_one_request_a_namespace_and_read_by_the_same() -> None:
    namespaces = Namespaces()
    a = Operator(namespaces, "a", namespaces=("shop", "search"))
    a.ownership.beat()
    namespaces.requests = 0
    a.ownership.beat()
    assert namespaces.requests == 2
    heartbeats = from_data(namespaces.data["search"])
    assert heartbeats["a/op"].watches == "shop, search"


def test_overlapping_scopes_are_told_once_and_who_it_is(caplog: pytest.LogCaptureFixture) -> None:
    namespaces = Namespaces()
    a, b = Operator(namespaces, "a"), Operator(namespaces, "b", namespaces=("shop",))
    gpu = Operator(namespaces, "c", operator_class="gpu", namespaces=("shop",))
    with caplog.at_level(logging.INFO, "embertide"):
        a.ownership.cover([job()])
        for _ in range(3):
            for operator in (a, gpu, b):
                operator.ownership.beat()
    assert a.ownership.overlaps == {"b/op": {"shop"}}
    assert b.ownership.overlaps == {"a/op": {"shop"}}
    assert gpu.ownership.overlaps == {}
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(warnings) == 2, "each tells once"
    assert any("operator a/op, which watches all namespaces" in text for text in warnings)
    namespaces.data["shop"].pop(data_key("b/op"))
    a.ownership.beat()
    assert a.ownership.overlaps == {}


@pytest.mark.parametrize(
    ("heartbeat", "free"),
    [(ALIVE, False), (None, False), (Heartbeat("a/op", "gpu", "x", "2026-11-21T12:00:00Z"), True)],
)
def test_only_an_operator_of_the_jobs_class_holds_it(
    heartbeat: Heartbeat | None, free: bool
) -> None:
    assert is_free(job("a/op"), HeartbeatRecord(heartbeat, changed=0, read=89), 90) is free
    assert is_free(job("a/op"), HeartbeatRecord(heartbeat, changed=0, read=90), 90)


def test_what_is_no_sign_of_life_is_left_out() -> None:
    """Whoever may edit the namespace may write there."""
    good = to_data(ALIVE)
    bad = {"a.x": "", "a.y": "[]", "a.z": '{"operator": 1}', "b.op": good["a.op"],
           "a.q": '{"operator": 5, "operator_class": "", "watches": "", "renewed": "x"}',
           "a.r": '{"operator": "a/r", "operator_class": "", "watches": "", "renewed": 7}',
           }  # fmt: skip
    assert from_data(good | bad) == {"a/op": ALIVE}


def test_a_sign_without_a_zone_harms_nobody() -> None:
    namespaces = Namespaces()
    naive = Heartbeat("b/op", "", "x", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    namespaces.data["shop"] = to_data(naive)
    a = Operator(namespaces, "a", namespaces=("shop",))
    a.ownership.beat()
    assert a.ownership.overlaps.keys() <= {"b/op"}
