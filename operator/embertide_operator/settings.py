"""How one operator process is set up: from its environment, checked once at the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Settings:
    """What the chart's values become.

    Attributes:
        namespace: the one to look after; "" means all.
        image: of workers whose job names none; ``image_cuda`` of those with ``device: cuda``.
        pull_policy: of the workers' image.
        backoff_seconds: pause before the second attempt; it doubles, up to five minutes.
        resync_seconds: how often all unfinished jobs are looked at, whatever was heard.
        stale_seconds: without a finished resync for this long, ``/healthz`` turns red.
        port: of ``/healthz`` and ``/metrics``.
    """

    namespace: str = ""
    image: str = ""
    image_cuda: str = ""
    pull_policy: str = "IfNotPresent"
    backoff_seconds: float = 10.0
    resync_seconds: float = 20.0
    stale_seconds: float = 90.0
    port: int = 8080

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """``EMBERTIDE_<FIELD>`` for every field; ValueError names a variable that is wrong."""
        given: dict[str, str | float | int] = {}
        for field in fields(cls):
            name = f"EMBERTIDE_{field.name.upper()}"
            if name not in environment:
                continue
            convert = {"str": str, "float": float, "int": int}[str(field.type)]
            try:
                given[field.name] = convert(environment[name])
            except ValueError:
                raise ValueError(f"{name} is {environment[name]!r}; must be a number") from None
        return cls(**given)  # type: ignore[arg-type]
