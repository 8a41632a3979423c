"""docs/api.md and docs/api/ are what the custom resource definition has."""

from __future__ import annotations

from embertide.spec.crd import crd
from tools.pages.api import PAGES, page


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
    text = "\n".join(map(page, PAGES))
    assert [name for name in names if f"`{name}" not in text] == []
