"""Settings of the operator: read from environment variables, checked once at the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one operator process, which the chart sets from its values.

    Attributes:
        namespace: the one to watch; "" for all.
        image: default image of the workers; ``image_cuda`` with ``device: cuda``.
        pull_policy: of the workers' image.
        backoff_seconds: back-off before the first retry; doubles with each, up to 5 minutes.
        resync_seconds: how often all unfinished jobs are reconciled, besides on events.
        stale_seconds: without a successful resync for this long, ``/healthz`` fails.
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
        """Settings from ``EMBERTIDE_<FIELD>``, for every field.

        Raises:
            ValueError: a variable that must be a number is not; the message names it.
        """
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
