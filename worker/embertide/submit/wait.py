"""Follow a submitted job to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from embertide.errors import ClusterError, JobFailed, VersionHeld, VersionPassed
from embertide.submit.cluster import Cluster

_POLL_SECONDS = 2.0
_PATIENCE_SECONDS = 300.0
"""How long the API may be away, as while a control plane is upgraded."""


def wait_for(cluster: Cluster, name: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Returns the status of the job when its version is published.

    Args:
        say: called with a line whenever the phase, the stage or the attempt changes.

    Raises:
        JobFailed: it failed, was not accepted, or is gone.
        VersionHeld: the job's gate keeps its version from becoming current.
        VersionPassed: another version stays current.
        ClusterError: the API did not answer for five minutes.
    """
    shown = ""
    while True:
        status = read_status(cluster, name)
        line = describe(status)
        if line != shown:
            say(f"{name}: {line}")
            shown = line
        if ended(name, status):
            refuse_held(name, status)
            return status
        time.sleep(_POLL_SECONDS)


def ended(name: str, status: dict[str, Any]) -> bool:
    """Whether the job has succeeded.

    Raises:
        JobFailed: it has failed, or will not start.
    """
    phase = status.get("phase")
    if phase == "Failed":
        last = status.get("lastFailure") or {}
        why = last.get("message") or _condition(status, "Failed").get("message") or "see its Events"
        raise JobFailed(f"{name} failed: {_condition(status, 'Failed').get('reason', '')}: {why}")
    accepted = _condition(status, "Accepted")
    if accepted.get("status") == "False":
        raise JobFailed(
            f"{name} was not accepted: {accepted.get('reason')}: {accepted.get('message')}"
        )
    return phase == "Succeeded"


def refuse_held(name: str, status: dict[str, Any]) -> None:
    """Report that readers do not get the version of a job that has succeeded.

    Raises:
        VersionHeld: the job's gate keeps its version from becoming current.
        VersionPassed: another version stays current.
    """
    output = status.get("output") or {}
    if why := output.get("held"):
        raise VersionHeld(
            f"{name}: version {output.get('version')} is complete but held: {why}. Readers keep the"
            " version before; embertide release makes it current, embertide discard removes it"
        )
    published = _condition(status, "Published")
    if published.get("reason") == "NotCurrent":
        raise VersionPassed(f"{name}: version {output.get('version')}: {published.get('message')}")


def describe(status: dict[str, Any]) -> str:
    """A status as one line, such as ``Running, infer, attempt 2``."""
    if not status:
        return "Pending, no operator has seen it yet"
    attempt, stage = status.get("attempt", 0), (status.get("progress") or {}).get("stage")
    parts = [str(status.get("phase", "Pending"))]
    if stage and parts == ["Running"]:
        parts.append(str(stage))
    if (missing := (status.get("inputs") or {}).get("missing")) and parts == ["Waiting"]:
        parts.append(str(missing))
    if attempt > 1:
        parts.append(f"attempt {attempt}")
    if version := (status.get("output") or {}).get("version"):
        parts.append(f"version {version}")
    return ", ".join(parts)


def read_status(cluster: Cluster, name: str) -> dict[str, Any]:
    """The job's status; an API that does not answer is asked again for five minutes.

    Raises:
        JobFailed: the job is gone.
        ClusterError: the API did not answer.
    """
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            found = cluster.get(name)
        except ClusterError:
            if time.monotonic() > give_up:
                raise
            time.sleep(_POLL_SECONDS)
            continue
        if found is None:
            raise JobFailed(f"{name} was deleted before it ended")
        return found.get("status") or {}


def _condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = status.get("conditions") or []
    return next((found for found in conditions if found["type"] == kind), {})
