"""docs/api.md is what the custom resource definition says."""

from __future__ import annotations

from embertide.spec.crd import crd
from tools.pages.api import page


def test_every_field_is_on_it() -> None:
    (version,) = crd()["spec"]["versions"]
    names = set[str]()
    pending = [version["schema"]["openAPIV3Schema"]]
    while pending:
        schema = pending.pop()
        fields = schema.get("properties", {})
        names |= set(fields)
        pending += [*fields.values(), *filter(None, [schema.get("items")])]
    assert len(names) > 60
    text = page()
    assert [name for name in names if f"`{name}" not in text and f"## {name}" not in text] == []
