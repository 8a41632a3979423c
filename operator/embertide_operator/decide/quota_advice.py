"""What to set where a ResourceQuota refuses a pod: the API server only says what is missing."""

from __future__ import annotations

import re

from embertide.spec.naming import CONTAINER, looker_name, planner_name, pusher_name

_NOT_SET = "must specify "
_ONE = re.compile(r"([\w./-]+)(?: for: ([\w,.-]+))?")
"""A resource, and the containers that do not say how much of it they take."""
_POD = re.compile(r'pods "([^"]+)"')
_USED_UP = "exceeded quota"


def with_advice(why: str, job: str) -> str:
    """A refusal in the API server's words, with what to set where a quota is its cause.

    Args:
        job: the name of the job whose pod is refused.
    """
    pod = _POD.search(why)
    planner = pod is not None and pod[1] in (planner_name(job), looker_name(job))
    if pod is not None and pod[1] == pusher_name(job):
        return f"{why}; set spec.push.resources" if _is_by_quota(why) else why
    _, not_set, missing = why.partition(_NOT_SET)
    if not_set:
        return f"{why}; {_what_to_set(_ONE.findall(missing), planner=planner)}"
    if _USED_UP not in why:
        return why
    if planner:
        return f"{why}; lower worker.planner.resources of the operator's chart, or raise the quota"
    return f"{why}; lower spec.workers.resources, use fewer workers, wait, or raise the quota"


def _is_by_quota(why: str) -> bool:
    return _NOT_SET in why or _USED_UP in why


def _what_to_set(missing: list[tuple[str, str]], *, planner: bool) -> str:
    """Where resources are set; ``missing`` has their names and containers."""
    names = " and ".join(dict.fromkeys(name for name, _ in missing))
    if planner:
        return f"set {names} in worker.planner.resources of the operator's chart"
    others = {name for _, names in missing for name in names.split(",")} - {CONTAINER, ""}
    if others:
        return f"set {names} of {', '.join(sorted(others))} in spec.workers.podTemplate"
    return (
        f"set {names} in spec.workers.resources, or for all jobs in worker.podTemplate of the"
        " operator's chart; a LimitRange of the namespace can do so too"
    )
