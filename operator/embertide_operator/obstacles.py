"""What keeps the pods of an attempt from starting: told at once, and remembered.

Most obstacles may go by themselves: a node gets room, a registry answers again. Those last until
``preRunningDeadlineSeconds``. A mistake does not: a Secret, a key or an image that does not exist,
an object that the API server refuses. Somebody may be about to mend it, so it is given
``mistakeSeconds`` of the operator's settings, and then ends the job.

``status.obstacle`` remembers what was told and since when, so that it is one Event however often
the kubelet tries.
"""

from __future__ import annotations

import re

from embertide_operator.failures import Failure
from embertide_operator.settings import Settings
from embertide_operator.status import LONGEST_MESSAGE, Draft, timestamp

REFUSED = "ChildRefused"
"""Reason of ``WorkersReady=False`` while the API server rejects a child object."""
GATED = "SchedulingGated"
"""Reason of ``WorkersReady=False`` while a queue holds the pods."""
NO_OBSTACLE = ("Starting", "Planning")
"""Reasons of ``WorkersReady=False`` while pods start as they should."""
_IMAGE = "ImagePullBackOff"
_SAME = {"ErrImagePull": _IMAGE}
"""Reasons that take turns: the kubelet tries to pull an image, and waits before the next time."""
_BACK_OFF = re.compile(r'Back-off pulling image "[^"]*": (ErrImagePull: )?')
"""What the kubelet puts before the cause while it waits; some versions leave out the cause."""
_NO_CAUSE = re.compile(r'Back-off pulling image "[^"]*"$')
_MISTAKES = (
    "CreateContainerConfigError",
    "ErrImageNeverPull",
    "FailedMount",
    "InvalidImageName",
    REFUSED,
)
_NO_SUCH_IMAGE = re.compile(
    r"not found|manifest unknown|does not exist|denied|unauthorized|forbidden", re.IGNORECASE
)
"""What registries say of an image that is not there, or not for these credentials."""


def note_obstacle(draft: Draft, reason: str, message: str) -> None:
    """Set ``WorkersReady=False`` with a reason; an obstacle is remembered, and told once."""
    if reason in NO_OBSTACLE:
        clear_obstacle(draft)
    else:
        reason, message = _remember(draft, _SAME.get(reason, reason), message[:LONGEST_MESSAGE])
    draft.set("WorkersReady", False, reason, message)


def note_refusal(draft: Draft, why: str) -> None:
    """The API server refuses an object of the job; workers that are ready stay so."""
    message = f"the API server rejected an object of this job: {why}"
    reason, message = _remember(draft, REFUSED, message[:LONGEST_MESSAGE])
    if not draft.is_true("WorkersReady"):
        draft.set("WorkersReady", False, reason, message)


def _remember(draft: Draft, reason: str, message: str) -> tuple[str, str]:
    """Set ``status.obstacle``, with an Event for a new one; returns the reason and the message."""
    old = draft["obstacle"] or {}
    known = old.get("reason") == reason and (reason not in _MISTAKES or _same_cause(old, message))
    if reason == _IMAGE:
        message = _BACK_OFF.sub("", message)
        message = old["message"] if known and _NO_CAUSE.search(message) else message
    since = old["since"] if known else timestamp(draft.now)
    draft["obstacle"] = {"reason": reason, "message": message, "since": since}
    if not known:
        draft.add_event(reason, message, warning=reason != GATED)
    return reason, message


def clear_obstacle(draft: Draft) -> None:
    """Nothing keeps the pods from starting."""
    draft["obstacle"] = None


def check_obstacle(draft: Draft, settings: Settings) -> Failure | None:
    """The failure of a job whose workers cannot start by a mistake that nobody mends."""
    found = draft["obstacle"]
    if found is None or draft["phase"] == "Running" or not _is_mistake(found):
        return None
    limit = settings.mistake_seconds
    if draft.seconds_since_time(found["since"]) <= limit:
        return None
    message = f"{found['message']}; it was not mended within {limit:g} s"
    return Failure(found["reason"], message, retryable=False)


def _is_mistake(obstacle: dict[str, str]) -> bool:
    """Whether an obstacle stays until somebody mends it."""
    if obstacle["reason"] == _IMAGE:
        return _NO_SUCH_IMAGE.search(obstacle["message"]) is not None
    return obstacle["reason"] in _MISTAKES


def _same_cause(old: dict[str, str], message: str) -> bool:
    """Whether two messages differ at most in the pod that they name first."""
    return old["message"].partition(": ")[2] == message.partition(": ")[2]
