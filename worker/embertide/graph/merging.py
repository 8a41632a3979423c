"""How many groups travel in one message, found out while the first ones travel (MGG, section 6).

Non-zeros are cut into groups once and gone over group by group, in the same order however the
rows of several groups travel: a result has the same bits whatever is chosen here.

The first use of a primitive on an axis tries every number out, in an order that all ranks know;
before the second they add up what each took and all choose the same, so both ends of a message
always agree on what is in it. Buffers hold ``most`` groups from the start: where fewer travel in
a message, more messages are in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Protocol, Self

import torch

from embertide.facts.telemetry.recorder import Label

_TRIES = 3
"""Messages of each number of groups that are timed."""


class Timed(Protocol):
    """What a trial needs of the channel whose messages it times."""

    @property
    def label(self) -> Label:
        """The axis and primitive that a choice is for."""

    def counted_as(self, primitive: str) -> Self:
        """The same channel, counted as another primitive."""

    def all_reduce(self, values: torch.Tensor) -> torch.Tensor:
        """The sum of what all ranks of the axis have. Collective."""


def numbers_tried(most: int) -> tuple[int, ...]:
    """The powers of two below a number of groups, and the number itself."""
    return tuple(sorted({min(1 << power, most) for power in range(most.bit_length() + 1)}))


@dataclass
class Trial:
    """Seconds and groups of the messages that were timed, by their number of groups.

    Added up, since one message makes up for another: what is waited for while the first arrives
    brings the second too.
    """

    seconds: dict[int, float] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)

    def add(self, groups: int, seconds: float) -> None:
        """A message of so many groups was waited for and gone over in so many seconds."""
        self.seconds[groups] = self.seconds.get(groups, 0.0) + seconds
        self.groups[groups] = self.groups.get(groups, 0) + groups


@dataclass(frozen=True)
class Pace:
    """One use of a pattern: which groups travel together, and how many messages are in flight.

    Attributes:
        depth: messages in flight while one is computed.
        each: groups of every message; None while numbers are tried out.
        tried: the numbers that are tried out, ascending.
        trial: where their times are kept.
    """

    depth: int
    each: int | None = 1
    tried: tuple[int, ...] = (1,)
    trial: Trial | None = None

    def spans(self, groups: int) -> Iterator[tuple[int, int]]:
        """First and one-past-last group of each message, of so many groups."""
        first = 0
        for size in self._sizes():
            if first >= groups:
                return
            last = min(first + size, groups)
            yield first, last
            first = last

    def _sizes(self) -> Iterator[int]:
        if self.each is not None:
            return repeat(self.each)
        timed = (size for size in self.tried for _ in range(_TRIES))
        return chain(repeat(1, self.depth), timed, repeat(self.tried[-1]))

    def took(self, message: int, groups: int, seconds: float) -> None:
        """Keep what a message took; the first ones came while the local group was computed."""
        if self.trial is not None and message >= self.depth:
            self.trial.add(groups, seconds)


class Merging:
    """The choices of a run, one for each axis and primitive.

    Args:
        most: groups that one message may carry; with 1 each travels alone.

    Attributes:
        chosen: axis and primitive -> groups in a message, once that is known.
    """

    def __init__(self, most: int = 1) -> None:
        self._tried = numbers_tried(most)
        self._trials: dict[tuple[str, str], Trial] = {}
        self.chosen: dict[tuple[str, str], int] = {}

    @property
    def most(self) -> int:
        """Groups that one message may carry."""
        return self._tried[-1]

    def pace(self, channel: Timed, depth: int) -> Pace:
        """How the next use goes, by what earlier ones took.

        Once for an axis and primitive it moves 8 + 16 bytes for each number tried, to each peer.
        Collective where more than one group may travel at a time: every rank of the axis must call.

        Args:
            depth: groups in flight, of those that ``most`` buffers hold.
        """
        if self.most == 1:
            return Pace(depth)
        key = channel.label.axis, channel.label.primitive
        if key not in self._trials:
            self._trials[key] = trial = Trial()
            return Pace(depth, None, self._tried, trial)
        if key not in self.chosen:
            self.chosen[key] = self._choose(channel, self._trials[key])
        each = self.chosen[key]
        return Pace((depth + 1) * self.most // each - 1, each)

    def _choose(self, channel: Timed, trial: Trial) -> int:
        """The number that took all ranks together the least time a group."""
        mine = [[trial.seconds.get(each, 0.0), trial.groups.get(each, 0)] for each in self._tried]
        tuning = channel.counted_as("tuning")
        seconds, groups = tuning.all_reduce(torch.tensor(mine, dtype=torch.float64)).T.tolist()
        took = {
            spent / count: each
            for each, spent, count in zip(self._tried, seconds, groups, strict=True)
            if count
        }
        return took[min(took)] if took else 1
