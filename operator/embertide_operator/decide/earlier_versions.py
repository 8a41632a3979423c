"""``status.versions``: the names under which the attempts of a job may have left something.

Before anything of its own version is written, rank 0 of every attempt looks at the versions of the
earlier ones: a complete one is the job's result, of an incomplete one nothing stays. So once rank 0
was seen at work, only the version of its own attempt can matter to the next one. Parts that it
could not remove are removed with other abandoned versions when the next version is published.
"""

from __future__ import annotations

from embertide_operator.job.status import Draft

MOST = 10
_LOOKING = "start"
"""The stage in which rank 0 looks at earlier versions."""


def with_next(versions: list[str], version: str) -> list[str]:
    """The versions that the attempt which writes ``version`` knows, itself the last; 10 at most.

    The first is that of the last attempt that was seen at work. Of those after it, which were not,
    the newest stay.
    """
    return [*versions[:1], *versions[1:][-(MOST - 2) :], version]


def forget_settled(draft: Draft) -> None:
    """When an attempt ends: drop the versions that can hold nothing of this job any more."""
    if draft["attemptStartTime"] is None:
        return
    versions = draft["versions"] or []
    stage = (draft["progress"] or {}).get("stage", _LOOKING)
    if stage != _LOOKING:
        versions = versions[-1:]
    elif draft["phase"] == "Planning":  # none of its workers were created
        versions = versions[:-1]
    draft["versions"] = versions or None
