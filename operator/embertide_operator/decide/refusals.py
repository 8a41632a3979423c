"""Which refusals of a pod last until somebody mends them, by the words of the API server.

A quota that is merely full has room again once other pods end. An unknown ServiceAccount, a policy
that the pod violates, or a quota that is smaller than the job stay as they are.
"""

from __future__ import annotations

import re

from embertide_operator.api.quantities import quantity

_LASTING = re.compile(
    r"serviceaccount \"[^\"]*\" not found"
    r"|no PriorityClass with name"
    r"|RuntimeClass \"[^\"]*\" not found"
    r"|violates PodSecurity"
    r"|unable to validate against any security context constraint"  # OpenShift
    r"|failed quota: .*must specify"
    r"|(maximum|minimum) \S+ usage per|max limit to request ratio per"  # a LimitRange
    r"|is invalid:"
    r"|denied (the )?request",  # an admission webhook or policy; a webhook that is away differs
    re.DOTALL,
)
_EXCEEDED = re.compile(
    r"exceeded quota: [^,]+, requested: (?P<requested>\S+), used: \S*, limited: (?P<limited>\S+)"
)
_USED = re.compile(r", used: \S*, limited: ")


def is_full(message: str, pods: int) -> bool:
    """Whether a quota has no room now, and would have for that many such pods."""
    exceeded = list(_EXCEEDED.finditer(message))
    return bool(exceeded) and not any(_is_too_small(match, pods) for match in exceeded)


def never_heals(message: str, pods: int) -> bool:
    """Whether the pods are refused until somebody changes something.

    Args:
        pods: how many have to run at the same time.
    """
    too_small = any(_is_too_small(match, pods) for match in _EXCEEDED.finditer(message))
    return too_small or _LASTING.search(message) is not None


def cause_of(message: str) -> str:
    """A refusal without the pod that it names, and without what a quota's other users take."""
    cause = message.partition(" is forbidden: ")[2] or message.partition(": ")[2]
    return _USED.sub(", limited: ", cause)


def _is_too_small(exceeded: re.Match[str], pods: int) -> bool:
    """Whether a quota, were it unused, is less than that many pods request."""
    requested, limited = _amounts(exceeded["requested"]), _amounts(exceeded["limited"])
    return any(
        pods * amount > limited.get(name, amount * pods) for name, amount in requested.items()
    )


def _amounts(text: str) -> dict[str, float]:
    """``limits.cpu=1,pods=2`` as numbers."""
    pairs = (item.partition("=") for item in text.rstrip(",;").split(","))
    return {name: quantity(amount) for name, _, amount in pairs}
