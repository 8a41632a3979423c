"""Progress in notebooks and IPython: one line that is rewritten."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from embertide.facts.telemetry.progress import OnProgress, Progress, ProgressClock
from embertide.facts.telemetry.progress_text import details, stage_name

_BAR = 24
"""Characters of the bar."""
_WIDTH = 79
"""Characters of the line: a longer one would wrap, and only its last part would be rewritten."""
_INTERVAL = 0.1
"""Seconds between two lines; each one is a message to the browser."""


class LineProgress:
    """A bar with its stage, rewritten in place by a carriage return.

    Args:
        stream: where the line goes.
        clock: joins stages to one percentage and a forecast.
    """

    def __init__(
        self,
        stream: IO[str],
        clock: ProgressClock,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._now = now
        self._place = ("", 0)
        self._last = 0.0
        self._line = ""

    def __call__(self, event: Progress) -> None:
        """Rewrite the line where a stage or layer begins, else at most every tenth of a second."""
        event = self._clock.forecast(event)
        overall, place = self._clock.overall(event), (event.stage, event.layer)
        if place == self._place and self._now() - self._last < _INTERVAL:
            return
        self._place, self._last = place, self._now()
        self._write(overall, ", ".join([stage_name(event), *details(event)]))

    def finish(self) -> None:
        """Show that all is done."""
        self._write(1.0, "done")

    def end(self) -> None:
        """Leave the line as it is; what is printed after it starts a new one."""
        if self._line:
            self._stream.write("\n")
            self._stream.flush()

    def _write(self, overall: float, text: str) -> None:
        bar = ("#" * round(_BAR * overall)).ljust(_BAR, "-")
        line = f"[{bar}] {overall:4.0%} {' '.join(text.split())}"
        line = line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
        # Spaces overwrite what is left of a longer line.
        self._stream.write(f"\r{line.ljust(len(self._line))}")
        self._stream.flush()
        self._line = line


def in_ipython() -> bool:
    """Whether this is a notebook or IPython, which is not imported for the answer."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return shell() is not None


@contextmanager
def line_in_notebooks(on_progress: OnProgress | None) -> Iterator[OnProgress]:
    """The caller's own view of the progress, else a line in notebooks, and nothing elsewhere."""
    if on_progress is not None or not in_ipython():
        yield on_progress or (lambda _event: None)
        return
    line = LineProgress(sys.stdout, ProgressClock())
    try:
        yield line
        line.finish()
    finally:
        line.end()
