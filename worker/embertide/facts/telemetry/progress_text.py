"""Progress in words, the same on terminals, in logs and in notebooks."""

from __future__ import annotations

from embertide.facts.telemetry.format import human_count, human_seconds
from embertide.facts.telemetry.progress import Progress


def stage_name(event: Progress) -> str:
    """The stage, with the layer where there is one: ``infer layer 2/3``."""
    return f"{event.stage} layer {event.layer}/{event.layers}" if event.layer else event.stage


def details(event: Progress) -> list[str]:
    """Rate, forecast and message, of those that are known."""
    parts = []
    if event.edges_per_second:
        parts.append(f"{human_count(event.edges_per_second)} edges/s")
    if event.eta_seconds is not None:
        parts.append(f"about {human_seconds(event.eta_seconds)} left")
    if event.message:
        parts.append(event.message)
    return parts
