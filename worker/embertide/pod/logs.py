"""Log lines for ``kubectl logs``: time, level, message, one line for each event.

The last ones go into the termination message of a container that fails, since its pod and its log
are soon gone.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Iterable

from embertide.pod.redact import redact

MOST_LINES = 40
_LONGEST_LINE = 400
_last: deque[str] = deque(maxlen=MOST_LINES)


class _Formatter(logging.Formatter):
    """Without credentials."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _LastLines(logging.Handler):
    """Remembers the last lines."""

    def emit(self, record: logging.LogRecord) -> None:
        _last.extend(line[:_LONGEST_LINE] for line in self.format(record).splitlines())


def log_to_stderr() -> None:
    """Send our own log to stderr, and remember its last lines."""
    log = logging.getLogger("embertide")
    formatter = _Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handlers: Iterable[logging.Handler] = (logging.StreamHandler(sys.stderr), _LastLines())
    for handler in handlers:
        handler.setFormatter(formatter)
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def last_lines() -> str:
    """The newest lines of the log, at most 40 of at most 400 characters."""
    return "\n".join(_last)
