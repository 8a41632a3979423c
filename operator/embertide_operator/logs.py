"""Logging of the operator process: one line a message, as text or as a JSON object."""

from __future__ import annotations

import logging

import kopf

from embertide_operator.settings import Settings

_TEXT = "%(asctime)s %(levelname)s %(message)s"
_LIBRARIES = ("kopf", "urllib3", "kubernetes")


def configure(settings: Settings) -> None:
    """Log to standard error. Libraries say what is wrong; with level debug, all they have."""
    kopf.configure(log_format=kopf.LogFormat.JSON if settings.log_format == "json" else _TEXT)
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    logging.getLogger().setLevel(level)
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(max(level, logging.WARNING) if level > 10 else level)
