"""What a run waits for, reported at the stage that waits for it."""

from __future__ import annotations

from dataclasses import replace

from embertide.facts.telemetry.progress import OnProgress, Progress


class StageReporter:
    """Passes progress on, and remembers the stage that runs."""

    def __init__(self, on_progress: OnProgress, stage: str = "start") -> None:
        self._on_progress, self._last = on_progress, Progress(stage)

    def __call__(self, event: Progress) -> None:
        """Pass an event on; its stage is the one that runs from now on."""
        self._last = event
        self._on_progress(event)

    def waits(self, message: str) -> None:
        """The stage that runs waits: report for what, such as a store. Threads may call."""
        self._on_progress(replace(self._last, message=message))
