"""What a pod says of its containers besides the worker's: init containers and sidecars.

They come from a job's ``podTemplate``. A pod whose init container fails never starts its worker,
and one whose sidecar fails is never ready, so that the worker's own status alone says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from embertide.spec.naming import CONTAINER
from embertide_operator.api.routes import Object

_NORMAL_WAITING_REASONS = ("ContainerCreating", "PodInitializing")
_RESTARTING = "CrashLoopBackOff"
_SIGNAL_EXIT_CODE = 128
"""A container killed by signal n exits with 128 + n."""


def other_trouble(pod: Object) -> tuple[str, str] | None:
    """(reason, message) of the first container but the worker that failed or cannot start.

    The message begins with the container, such as ``init container 'fetch'``; it is for the caller
    to say of which pod. Init containers come first, in their order.
    """
    for title, status in _others(pod):
        if (found := _trouble(status)) is not None:
            reason, message = found
            return reason, f"{title} {message}"
    return None


def _others(pod: Object) -> Iterator[tuple[str, Object]]:
    """(title, status) of every container but the worker, in the order in which they start."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    native = {
        item["name"]
        for item in spec.get("initContainers") or []
        if item.get("restartPolicy") == "Always"
    }
    for item in status.get("initContainerStatuses") or []:
        kind = "sidecar" if item["name"] in native else "init container"
        yield f"{kind} {item['name']!r}", item
    for item in status.get("containerStatuses") or []:
        if item["name"] != CONTAINER:
            yield f"sidecar {item['name']!r}", item


def _trouble(status: Object) -> tuple[str, str] | None:
    """(reason, what happened) of a container that failed or cannot start."""
    state = status.get("state") or {}
    waiting, end = state.get("waiting") or {}, state.get("terminated")
    reason = waiting.get("reason")
    if reason == _RESTARTING:
        end = (status.get("lastState") or {}).get("terminated")
    elif reason and reason not in _NORMAL_WAITING_REASONS:
        return str(reason), f"cannot start: {waiting.get('message') or reason}"
    if end is None or end["exitCode"] == 0:
        return None if reason != _RESTARTING else (_RESTARTING, _ended_again(end, waiting))
    return str(reason or end.get("reason") or "Error"), _how_it_ended(end)


def _ended_again(end: Object | None, waiting: Object) -> str:
    """The message for a container that ended without failing, and is restarted."""
    if end is None:
        return f"is restarted: {waiting.get('message') or _RESTARTING}"
    return "exits with code 0 and is restarted, again and again; it has to keep running"


def _how_it_ended(end: Object) -> str:
    """How a container ended that has failed, with the message that it left."""
    code, output = end["exitCode"], (end.get("message") or "").strip()
    if end.get("reason") == "OOMKilled":
        text = "exceeded its memory limit and was killed"
    elif end.get("reason") in ("StartError", "ContainerCannotRun"):
        text = "cannot start"
    elif code > _SIGNAL_EXIT_CODE:
        text = f"was killed by signal {code - _SIGNAL_EXIT_CODE}"
    else:
        text = f"exited with code {code}"
    return f"{text}: {output}" if output else text
