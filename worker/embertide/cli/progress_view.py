"""Progress for a person or a program: a moving line on a terminal, plain lines in a log, JSON.

All three go through `ProgressClock`, so that they show the same percentage and forecast.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from embertide.facts.telemetry.format import human_seconds
from embertide.facts.telemetry.progress import STAGE_WEIGHTS, OnProgress, Progress, ProgressClock
from embertide.facts.telemetry.progress_text import details, stage_name
from embertide.facts.telemetry.strict_json import json_text

if TYPE_CHECKING:
    from rich.console import Console

# Seconds between two plain lines of one stage.
PLAIN_INTERVAL = 5.0


def ignore(event: Progress) -> None:
    """Show nothing (--quiet)."""


class JsonProgress:
    """One JSON object a line for every event."""

    def __init__(self, stream: IO[str], clock: ProgressClock) -> None:
        self._stream = stream
        self._clock = clock

    def __call__(self, event: Progress) -> None:
        """Write the event with the overall fraction."""
        event = self._clock.forecast(event)
        line = {"event": "progress", **event.to_json(), "overall": self._clock.overall(event)}
        self._stream.write(json_text(line) + "\n")
        self._stream.flush()


class PlainProgress:
    """A line when a stage or layer begins, and at most every few seconds in between."""

    def __init__(
        self,
        stream: IO[str],
        clock: ProgressClock,
        interval: float = PLAIN_INTERVAL,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._interval = interval
        self._now = now
        self._shown: tuple[str, int, str] | None = None
        self._last = 0.0

    def __call__(self, event: Progress) -> None:
        """Write the event, if it is time."""
        event = self._clock.forecast(event)
        place = (event.stage, event.layer, event.message)
        if place == self._shown and self._now() - self._last < self._interval:
            return
        self._shown, self._last = place, self._now()
        self._stream.write(f"embertide: {describe(event, self._clock.overall(event))}\n")
        self._stream.flush()


class LiveProgress:
    """A bar that moves, and a line for every stage that is done."""

    def __init__(
        self,
        console: Console,
        clock: ProgressClock,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self._console = console
        self._clock = clock
        self._now = now
        self._stage = ""
        self._stage_start = now()
        self._bar = Bar(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[details]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("start", total=1.0, details="")

    def __enter__(self) -> LiveProgress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, event: Progress) -> None:
        """Move the bar to the event's overall fraction."""
        event = self._clock.forecast(event)
        if self._clock.comes_after(event.stage, self._stage):
            self.finish_stage()
            self._stage, self._stage_start = event.stage, self._now()
        self._bar.update(
            self._task,
            completed=self._clock.overall(event),
            description=stage_name(event),
            details=", ".join(details(event)),
        )

    def finish_stage(self) -> None:
        """Leave a line for the stage that ends."""
        if self._stage:
            seconds = human_seconds(self._now() - self._stage_start)
            self._console.print(f"  {self._stage:<10} {seconds:>7}", highlight=False)
            self._stage = ""


def describe(event: Progress, overall: float) -> str:
    """One line: stage, its fraction, the whole's, rate, forecast."""
    parts = [f"{stage_name(event)} {event.fraction:.0%}", f"overall {overall:.0%}"]
    return " | ".join([*parts, *details(event)])


@contextmanager
def progress_view(
    *,
    json_output: bool,
    quiet: bool,
    stdout: IO[str],
    stderr: IO[str],
    weights: Mapping[str, float] = STAGE_WEIGHTS,
) -> Iterator[OnProgress]:
    """The view that fits: JSON on stdout, else a bar on a terminal, else lines, on stderr."""
    clock = ProgressClock(weights)
    if json_output:
        yield JsonProgress(stdout, clock)
    elif quiet:
        yield ignore
    elif stderr.isatty():
        from rich.console import Console

        with LiveProgress(Console(file=stderr), clock) as live:
            yield live
            live.finish_stage()
    else:
        yield PlainProgress(stderr, clock)


def write_json(stream: IO[str], data: Any) -> None:
    """One JSON document on one line."""
    stream.write(json_text(data) + "\n")
    stream.flush()
