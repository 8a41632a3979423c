"""Which replica leads: what one candidate makes of the Lease that all of them see.

A pure state machine, given what was read and written and when. The rules are those of Kubernetes'
own components. A Lease that has not changed for its duration may be taken; its times are the
holder's clock and are never compared with this machine's, only whether it changed is seen on the
monotonic clock. A leader counts from before it asked for its last renewal, others from after they
saw it, and its deadline is the shorter one: so it has ended before anyone else begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

LeaseSpec = dict[str, Any]
"""``spec`` of a ``coordination.k8s.io/v1`` Lease."""

_RELEASED_SECONDS = 1
"""The duration in a Lease that its holder gave back; the API wants it above 0."""


@dataclass(frozen=True)
class Terms:
    """The times of an election, in seconds.

    Attributes:
        lease: for how long a Lease holds after a renewal.
        renew: a leader gives up after so long without one; less than ``lease``.
    """

    lease: int
    renew: float


class Election:
    """One candidate. Times are seconds on the monotonic clock; not thread-safe.

    Attributes:
        holder: who held the Lease when it was last seen; "" for none.
        leads: whether this candidate holds it.
    """

    def __init__(self, identity: str, terms: Terms) -> None:
        self.identity, self.terms = identity, terms
        self.holder, self.leads = "", False
        self._spec: LeaseSpec = {}
        self._changed = self._renewed = 0.0

    def see(self, spec: LeaseSpec, at: float) -> None:
        """The Lease is this; a leader that finds another holder in it leads no more."""
        if spec != self._spec:
            self._spec, self._changed = spec, at
        self.holder = str(spec.get("holderIdentity") or "")
        self.leads = self.leads and self.holder == self.identity

    def bid(self, at: float, now: datetime) -> LeaseSpec | None:
        """What to write in order to lead, or to go on leading; None while another one leads."""
        if self.holder not in ("", self.identity) and at < self._changed + self._duration():
            return None
        kept = self._spec if self.holder == self.identity else {}
        passed_on = int(self._spec.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.terms.lease,
            "acquireTime": kept.get("acquireTime") or micro_time(now),
            "renewTime": micro_time(now),
            "leaseTransitions": passed_on + (self.holder != self.identity),
        }

    def won(self, spec: LeaseSpec, asked_at: float) -> None:
        """A bid was written; it was sent at ``asked_at``."""
        self.see(spec, asked_at)
        self.leads, self._renewed = True, asked_at

    def deadline(self) -> float:
        """When a leader that is not renewed has to end."""
        return self._renewed + self.terms.renew

    def released(self, now: datetime) -> LeaseSpec:
        """What a leader writes that has stopped, so that the next need not wait."""
        return self._spec | {
            "holderIdentity": "",
            "leaseDurationSeconds": _RELEASED_SECONDS,
            "renewTime": micro_time(now),
        }

    def _duration(self) -> float:
        """The seconds of the Lease as its holder wrote it, which may have other terms."""
        return float(self._spec.get("leaseDurationSeconds") or self.terms.lease)


def micro_time(now: datetime) -> str:
    """A time as Leases have it: RFC 3339 in UTC, in microseconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
