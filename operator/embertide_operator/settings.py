"""Settings of the operator: read from environment variables, checked once at the start."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from embertide.spec.naming import USER_ID

Number = TypeVar("Number", int, float)

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LONGEST_SECONDS = 86400.0
_LONGEST_RETENTION = 366 * 86400.0
_MOST_JOBS = 10**6
_MOST_REQUESTS = 10**4
_LARGEST_PORT = 65535
_LARGEST_USER = 2**31 - 1


def _setting(default: Any, parse: Callable[[str], Any] = str) -> Any:
    """A field whose variable is read by ``parse``, a ValueError of which says what is allowed."""
    return field(default=default, metadata={"parse": parse})


def _seconds(text: str) -> float:
    return _number(float, text, 0.001, _LONGEST_SECONDS, "a number of seconds above 0")


def _long(text: str) -> float:
    return _number(float, text, 1.0, _LONGEST_RETENTION, "a number of seconds above 0")


def _count(text: str) -> int:
    return _number(int, text, 0, _MOST_JOBS, "a whole number from 0")


def _rate(text: str) -> float:
    return _number(float, text, 0.1, _MOST_REQUESTS, "a number from 0.1 to 10000")


def _burst(text: str) -> int:
    return _number(int, text, 1, _MOST_REQUESTS, "a whole number from 1 to 10000")


def _port(text: str) -> int:
    return _number(int, text, 1, _LARGEST_PORT, "a port, 1 to 65535")


def _user(text: str) -> int | None:
    """A user id; "" for none, which leaves the choice to the cluster."""
    allowed = "a user id from 1, or empty"
    return _number(int, text, 1, _LARGEST_USER, allowed) if text else None


def _number(
    kind: Callable[[str], Number], text: str, least: float, most: float, allowed: str
) -> Number:
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(allowed) from None
    if not least <= value <= most:  # so written, it refuses nan as well
        raise ValueError(allowed)
    return value


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return parse


def _namespaces(text: str) -> tuple[str, ...]:
    """Names with commas between them; "" for none."""
    names = tuple(text.split(",")) if text else ()
    if not all(_NAMESPACE.fullmatch(name) for name in names):
        raise ValueError("names of namespaces with commas between them")
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one operator process, which the chart sets from its values.

    Attributes:
        namespaces: those to watch, which must exist; none means all of the cluster.
        image: default image of the workers; ``image_cuda`` with ``device: cuda``.
        pull_policy: of the workers' image.
        worker_user: user and group id of the workers; None leaves it to the cluster, as
            OpenShift wants it.
        backoff_seconds: back-off before the first retry; doubles with each, up to 5 minutes.
        resync_seconds: how often all unfinished jobs are reconciled, besides on events, and how
            long a watch lasts before it is made anew.
        stale_seconds: with a watch that hears nothing or a pass that does not end for this long,
            ``/healthz`` fails.
        max_running_jobs: how many jobs run at once, the others wait; 0 for any number.
        max_running_jobs_per_namespace: the same for each namespace.
        api_qps: requests to the API server a second, on average.
        api_burst: how many of them at once.
        own_namespace: that of the operator, with the ConfigMap ``outputs_config_map``, in which it
            keeps when each output was last published; "" keeps that in memory only.
        output_retention_seconds: how long an output is remembered after its last job.
        log_level: messages below it are left out.
        log_format: ``text``, or ``json`` for one object a line.
        port: of ``/healthz`` and ``/metrics``.
    """

    namespaces: tuple[str, ...] = _setting((), _namespaces)
    image: str = _setting("")
    image_cuda: str = _setting("")
    pull_policy: str = _setting("IfNotPresent", _one_of("Always", "IfNotPresent", "Never"))
    worker_user: int | None = _setting(USER_ID, _user)
    backoff_seconds: float = _setting(10.0, _seconds)
    resync_seconds: float = _setting(20.0, _seconds)
    stale_seconds: float = _setting(90.0, _seconds)
    max_running_jobs: int = _setting(50, _count)
    max_running_jobs_per_namespace: int = _setting(0, _count)
    api_qps: float = _setting(50.0, _rate)
    api_burst: int = _setting(100, _burst)
    own_namespace: str = _setting("")
    outputs_config_map: str = _setting("")
    output_retention_seconds: float = _setting(14 * 86400.0, _long)
    log_level: str = _setting("info", _one_of(*LOG_LEVELS))
    log_format: str = _setting("text", _one_of(*LOG_FORMATS))
    port: int = _setting(8080, _port)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Settings from ``EMBERTIDE_<FIELD>``, for every field.

        Raises:
            ValueError: a variable has a value that is not allowed; the message names it.
        """
        given: dict[str, Any] = {}
        for item in fields(cls):
            name = f"EMBERTIDE_{item.name.upper()}"
            if name not in environment:
                continue
            try:
                given[item.name] = item.metadata["parse"](environment[name])
            except ValueError as error:
                raise ValueError(f"{name} is {environment[name]!r}; must be {error}") from None
        settings = cls(**given)
        if settings.stale_seconds <= settings.resync_seconds:
            raise ValueError(
                f"EMBERTIDE_STALE_SECONDS ({settings.stale_seconds:g}) must be more than "
                f"EMBERTIDE_RESYNC_SECONDS ({settings.resync_seconds:g})"
            )
        return settings
