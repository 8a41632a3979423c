"""Logging of the operator process: one line a message, as text or as a JSON object."""

from __future__ import annotations

import logging

import kopf

from embertide_operator.config.settings import Settings

_LIBRARIES = ("kopf", "urllib3", "kubernetes")


def configure(settings: Settings) -> None:
    """Log to standard error. Libraries say what is wrong; with level debug, all they have."""
    json = settings.log_format == "json"
    kopf.configure(log_format=kopf.LogFormat.JSON if json else kopf.LogFormat.FULL)
    logging.captureWarnings(True)  # those of Python become lines of the log, too
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    logging.getLogger().setLevel(level)
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(
            level if level == logging.DEBUG else max(level, logging.WARNING)
        )
