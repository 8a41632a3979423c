"""Rules in CEL: what the API server checks about a job beyond types and bounds.

A rule stands beside the Python check that says the same, as ``rules`` of the model, and goes
into the custom resource definition from there. Only functions that Kubernetes 1.25 knows are
used. The API server refuses rules that could get expensive, judged by the longest lists and
texts that the schema lets through; that is why those have bounds.

What CEL cannot say, the operator does in ``Accepted=False``: that ``workers.grid`` is no number
and fits ``count``, and that ``inference.fanout`` is no number (fields without a type are hidden
from rules); a null ``idColumn`` (it looks like one left out); ``..`` in paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"]


@dataclass(frozen=True)
class Rule:
    """One rule about ``self``, the object or value that it stands at.

    Attributes:
        rule: the expression; true for what is allowed.
        message: what a person reads who broke it: what is wrong and what to write instead.
        path: the field below ``self`` that is to blame, such as ``.output.uri``.
        reason: the kind of error, which stands before the message.
    """

    rule: str
    message: str
    path: str = ""
    reason: Reason = "FieldValueInvalid"

    def to_schema(self) -> dict[str, Any]:
        """An item of ``x-kubernetes-validations``."""
        found = {"rule": self.rule, "message": self.message}
        if self.path:
            found["fieldPath"] = self.path
        if self.reason != "FieldValueInvalid":
            found["reason"] = self.reason
        return found


def unchanged_once_accepted(field: str) -> Rule:
    """A root rule: a field of the spec stays as it is from when the job was accepted."""
    conditions = "oldSelf.status.conditions"
    accepted = (
        f"has(oldSelf.status) && has({conditions}) && "
        f"{conditions}.exists(c, c.type == 'Accepted' && c.status == 'True')"
    )
    return Rule(
        rule=f"!({accepted}) || self.spec.{field} == oldSelf.spec.{field}",
        message=f"spec.{field} cannot change once the job is accepted; create a job with "
        "another name",
        path=f".spec.{field}",
        reason="FieldValueForbidden",
    )
