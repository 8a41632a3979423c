"""Jobs in a namespace that is being deleted: nothing can be created there, not even an Event.

Kubernetes ends the pods and deletes the job itself unless somebody's finalizer holds it. So the
operator writes once that it leaves the job alone, and does nothing more.
"""

from __future__ import annotations

from datetime import datetime

from embertide_operator.api.routes import Object
from embertide_operator.job.status import Draft, parse_time

NAMESPACE_TERMINATING = "NamespaceTerminating"
"""Reason of ``Progressing=False`` while a job is left alone."""
LEFT_ALONE_SECONDS = 600.0
"""How long a job is left alone: a status that says so may have been restored elsewhere."""


def leave_alone(job: Object, now: datetime) -> Draft:
    """The status of a job whose objects cannot be created since its namespace is being deleted."""
    draft = Draft(job, now)
    draft.drop("Progressing")  # so that the time of its last transition is now
    message = "the namespace is being deleted; the operator leaves the job alone"
    draft.set("Progressing", False, NAMESPACE_TERMINATING, message)
    return draft


def is_left_alone(draft: Draft) -> bool:
    """Whether the job's namespace was found to be in deletion a short while ago."""
    found = draft.condition("Progressing")
    if found.get("reason") != NAMESPACE_TERMINATING:
        return False
    since = draft.now - parse_time(found["lastTransitionTime"])
    return since.total_seconds() < LEFT_ALONE_SECONDS
