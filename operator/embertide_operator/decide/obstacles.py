"""What keeps the pods of an attempt from starting: reported at once, and remembered.

Most obstacles may go by themselves: a node gets room, a registry answers again. Those last until
``preRunningDeadlineSeconds``. A mistake does not: a Secret, a key or an image that does not exist,
an object or a pod that the API server refuses for good. Somebody may be about to mend it, so it is
given ``mistakeSeconds`` of the operator's settings, and then ends the job.

``status.obstacle`` remembers what was reported and since when, so that it is one Event
however often the kubelet tries.
"""

from __future__ import annotations

import re

from embertide_operator.config.settings import Settings
from embertide_operator.decide.refusals import cause_of, is_full, never_heals
from embertide_operator.job.failures import Failure
from embertide_operator.job.status import LONGEST_MESSAGE, Draft, timestamp

REFUSED = "ChildRefused"
"""Reason of ``WorkersReady=False`` while the API server rejects a child object."""
PODS_REFUSED = "PodsRefused"
"""Reason of ``WorkersReady=False`` while the StatefulSet cannot create its pods."""
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
    """Set ``WorkersReady=False`` with a reason; an obstacle is remembered, and reported once."""
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
    same = old.get("reason") == reason
    if reason == _IMAGE:
        message = _BACK_OFF.sub("", message)
        message = old["message"] if same and _NO_CAUSE.search(message) else message
    known = same and _is_as_before(old, message, draft)
    since = old["since"] if known else timestamp(draft.now)
    draft["obstacle"] = {"reason": reason, "message": message, "since": since}
    if not known:
        draft.add_event(reason, message, warning=reason != GATED)
    return reason, message


def _is_as_before(old: dict[str, str], message: str, draft: Draft) -> bool:
    """Whether an obstacle is the one before of its reason; a mistake has its own patience."""
    if old["reason"] == _IMAGE and _NO_CAUSE.search(old["message"]):
        return True
    mistake = _is_mistake(old["reason"], message, draft)
    if mistake != _is_mistake(old["reason"], old["message"], draft):
        return False
    return not mistake or old["reason"] == _IMAGE or cause_of(old["message"]) == cause_of(message)


def clear_obstacle(draft: Draft) -> None:
    """Nothing keeps the pods from starting."""
    draft["obstacle"] = None


def check_obstacle(draft: Draft, settings: Settings) -> Failure | None:
    """The failure of a job whose workers cannot start by a mistake that does not mend itself."""
    found = draft["obstacle"]
    if found is None or draft["phase"] == "Running":
        return None
    if not _is_mistake(found["reason"], found["message"], draft):
        return None
    limit = settings.mistake_seconds
    if draft.seconds_since_time(found["since"]) <= limit:
        return None
    message = f"{found['message']}; it was not mended within {limit:g} s"
    return Failure(found["reason"], message, retryable=False)


def _is_mistake(reason: str, message: str, draft: Draft) -> bool:
    """Whether an obstacle stays until somebody mends it."""
    if reason == _IMAGE:
        return _NO_SUCH_IMAGE.search(message) is not None
    if reason == PODS_REFUSED:
        return never_heals(message, (draft["plan"] or {}).get("replicas", 1))
    return reason in _MISTAKES and not (reason == REFUSED and is_full(message, 1))
