"""Log lines for ``kubectl logs``: time, level, message, one line for each event."""

from __future__ import annotations

import logging
import sys
import time


def log_to_stderr() -> None:
    """Send our own log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    log = logging.getLogger("embertide")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
