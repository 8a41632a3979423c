"""The election of a leader, with clocks made for the test: never two, and soon another."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from embertide_operator.leadership.election import Election, Terms

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
TERMS = Terms(lease=15, renew=10.0)


def bid(candidate: Election, at: float) -> dict[str, Any]:
    """A bid that must be one."""
    spec = candidate.bid(at, NOW + timedelta(seconds=at))
    assert spec is not None
    return spec


def leader(name: str = "a", at: float = 0.0) -> tuple[Election, dict[str, Any]]:
    """A candidate that leads since then, and the Lease."""
    candidate = Election(name, TERMS)
    spec = bid(candidate, at)
    candidate.won(spec, at)
    return candidate, spec


def test_the_first_takes_a_lease_that_nobody_holds() -> None:
    candidate, spec = leader()
    assert candidate.leads
    assert spec["holderIdentity"] == "a"
    assert spec["leaseDurationSeconds"] == 15
    assert spec["acquireTime"] == spec["renewTime"] == "2026-11-21T12:00:00.000000Z"
    assert spec["leaseTransitions"] == 1


def test_a_renewal_keeps_when_it_began() -> None:
    candidate, first = leader()
    second = bid(candidate, 4)
    assert second["acquireTime"] == first["acquireTime"]
    assert second["renewTime"] > first["renewTime"]
    assert second["leaseTransitions"] == first["leaseTransitions"]
    candidate.won(second, 4)
    assert candidate.deadline() == 14


def test_another_waits_for_the_duration_from_when_it_saw_the_last_change() -> None:
    """However old the Lease says it is: clocks of two machines are never compared."""
    _, held = leader()
    other = Election("b", TERMS)
    other.see(held | {"renewTime": "2001-01-01T00:00:00.000000Z"}, 100)
    assert other.bid(114.9, NOW) is None
    other.see(held, 110)
    assert other.bid(124.9, NOW) is None
    taken = bid(other, 125)
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("b", 2)


def test_the_duration_is_the_holders() -> None:
    """A leader of an older release may have other terms."""
    _, held = leader()
    other = Election("b", TERMS)
    other.see(held | {"leaseDurationSeconds": 60}, 0)
    assert other.bid(59, NOW) is None
    assert other.bid(60, NOW) is not None


def test_a_lease_given_back_is_free_at_once() -> None:
    first, _ = leader()
    freed = first.released(NOW)
    assert freed["leaseDurationSeconds"] == 1, "the API wants it above 0"
    other = Election("b", TERMS)
    other.see(freed, 1)
    assert bid(other, 1)["holderIdentity"] == "b"


def test_the_next_life_of_a_container_goes_on_with_its_lease() -> None:
    _, held = leader()
    again = Election("a", TERMS)
    again.see(held, 1)
    assert not again.leads, "only a write of its own makes it lead"
    spec = bid(again, 1)
    assert spec["acquireTime"] == held["acquireTime"]


def test_a_leader_that_sees_another_holder_leads_no_more() -> None:
    first, held = leader()
    first.see(held | {"holderIdentity": "b"}, 3)
    assert not first.leads


def test_a_leader_ends_before_its_lease_can_be_taken() -> None:
    """It counts from before it asked, others from after they saw it."""
    first, held = leader(at=0)
    other = Election("b", TERMS)
    other.see(held, 0)
    free = next(t for t in range(100) if other.bid(t, NOW) is not None)
    assert first.deadline() < free


@dataclass
class Replica:
    """A candidate whose clock has an offset and whose requests take a random time."""

    name: str
    chance: random.Random
    offset: float
    election: Election = field(init=False)
    led: list[tuple[float, float]] = field(default_factory=list)
    wakes: float = 0.0

    def __post_init__(self) -> None:
        self.election = Election(self.name, TERMS)

    def pause(self) -> float:
        """Seconds that a request or a wait takes: now and then longer than the Lease holds."""
        return self.chance.choice([0.01, 0.1, 1.0, 3.0, 8.0, 20.0]) * self.chance.random()


def simulate(seed: int, seconds: float = 600.0) -> list[Replica]:
    """Three replicas and one Lease; each read, write and answer has a moment of its own."""
    chance = random.Random(seed)
    replicas = [Replica(name, chance, chance.uniform(0, 1e6)) for name in "abc"]
    lease: dict[str, Any] = {}
    version = 0
    agenda: list[tuple[float, int, Any]] = []

    def at(when: float, action: Any) -> None:
        agenda.append((when, len(agenda), action))

    def read(replica: Replica, now: float) -> None:
        seen, known = dict(lease), version
        at(now + replica.pause(), lambda then: write(replica, then, seen, known))

    def write(replica: Replica, now: float, seen: dict[str, Any], known: int) -> None:
        local = now + replica.offset
        replica.election.see(seen, local)
        spec = replica.election.bid(local, NOW + timedelta(seconds=now))
        if spec is None:
            at(now + replica.pause(), lambda then: read(replica, then))
        else:
            at(now + replica.pause(), lambda then: store(replica, then, spec, known, local))

    def store(replica: Replica, now: float, spec: dict[str, Any], known: int, asked: float) -> None:
        nonlocal lease, version
        if known == version:
            lease, version = spec, version + 1
            at(now + replica.pause(), lambda then: answer(replica, then, spec, asked))
        else:
            at(now + replica.pause(), lambda then: read(replica, then))

    def answer(replica: Replica, now: float, spec: dict[str, Any], asked: float) -> None:
        replica.election.won(spec, asked)
        until = replica.election.deadline() - replica.offset
        if until > now:  # else it ends at once
            replica.led.append((now, until))
        at(now + replica.pause(), lambda then: read(replica, then))

    for replica in replicas:
        at(replica.pause(), lambda then, replica=replica: read(replica, then))
    while agenda:
        agenda.sort(reverse=True, key=lambda item: item[:2])
        now, _, action = agenda.pop()
        if now > seconds:
            break
        action(now)
    return replicas


@pytest.mark.parametrize("seed", range(20))
def test_no_two_lead_at_once_whatever_requests_take(seed: int) -> None:
    replicas = simulate(seed)
    spans = sorted((*span, r.name) for r in replicas for span in r.led)
    assert len({name for *_, name in spans}) > 1, "the Lease changed hands"
    for index, (begin, end, name) in enumerate(spans):
        for other_begin, _, other in spans[index + 1 :]:
            assert other == name or other_begin >= end, (name, begin, end, other, other_begin)
