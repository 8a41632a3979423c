"""CEL rules: what the API server validates about a job beyond types and bounds.

Rules are the ``rules`` of a model, next to the Python checks that they repeat, and are copied into
the custom resource definition. They use only functions of Kubernetes 1.25. The API server rejects
rules whose estimated cost is too high, computed from the maximum lengths in the schema; so lists
and strings have bounds.

The operator validates what CEL cannot and reports it as ``Accepted=False``: that ``workers.grid``
is no number, agrees with ``count``, and has no more workers than a job may have or the graph has
nodes, and that ``inference.fanout`` is no number (rules cannot access fields without a type); a
null ``idColumn`` (same as unset); ``..`` in paths; an output within places that ``uris`` or a
pattern names; days and times that are not in the calendar, and forms of days that repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"]


@dataclass(frozen=True)
class Rule:
    """One rule about ``self``, the object or value that it is attached to.

    Attributes:
        rule: the expression; true for what is allowed.
        message: the error message: what is wrong and what to write instead.
        path: the invalid field below ``self``, such as ``.output.uri``.
        reason: the kind of error; the API server puts its name before the message.
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


def or_default(field: str, default: str) -> str:
    """In CEL: a field of an item of a list, or its default, which the definition does not set.

    Args:
        field: such as ``self.format``; the last name may be unset.
        default: as CEL writes it, such as ``'parquet'``.
    """
    return f"(has({field}) ? {field} : {default})"


def unchanged_once_accepted(field: str) -> Rule:
    """A root rule: a field of the spec is immutable once the job is accepted."""
    return Rule(
        rule=f"!({_was_true('Accepted')}) || self.spec.{field} == oldSelf.spec.{field}",
        message=f"spec.{field} cannot change once the job is accepted; create a job with "
        "another name",
        path=f".spec.{field}",
        reason="FieldValueForbidden",
    )


def optional_unchanged_once_accepted(field: str) -> Rule:
    """The same of a field that may be left out."""
    now, before = f"self.spec.{field}", f"oldSelf.spec.{field}"
    same = f"has({now}) == has({before}) && (!has({now}) || {now} == {before})"
    return Rule(
        rule=f"!({_was_true('Accepted')}) || ({same})",
        message=f"spec.{field} cannot change once the job is accepted; create a job with "
        "another name",
        path=f".spec.{field}",
        reason="FieldValueForbidden",
    )


def unchanged_once_finished(field: str) -> Rule:
    """A root rule: a field of the spec is immutable once the job has succeeded or failed."""
    now, before = f"self.spec.{field}", f"oldSelf.spec.{field}"
    same = f"has({now}) == has({before}) && (!has({now}) || {now} == {before})"
    return Rule(
        rule=f"!({_was_true('Complete', 'Failed')}) || ({same})",
        message=f"spec.{field} cannot change once the job has finished, since nothing would come "
        "of it; create a job with another name",
        path=f".spec.{field}",
        reason="FieldValueForbidden",
    )


def _was_true(*kinds: str) -> str:
    """In CEL: whether one of these conditions was true before the change."""
    conditions = "oldSelf.status.conditions"
    known = " || ".join(f"c.type == '{kind}'" for kind in kinds)
    known = f"({known})" if len(kinds) > 1 else known
    return (
        f"has(oldSelf.status) && has({conditions}) && "
        f"{conditions}.exists(c, {known} && c.status == 'True')"
    )
