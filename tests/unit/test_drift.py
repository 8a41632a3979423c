"""Objects that somebody changed by hand are applied again; not for the API server's own forms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from embertide_operator.pods.drift import was_changed
from tests.support.expected import FOLDER, Expected, read

Object = dict[str, Any]


FORMS = read(FOLDER / "forms.txt")


@pytest.mark.parametrize("name", FORMS)
def test_forms_that_mean_the_same_and_others(name: str, expected: Expected) -> None:
    """What is wanted, and what the API server has."""
    wanted, found = map(json.loads, name.split(" and "))
    expected.check("forms.txt", name, "changed" if was_changed(wanted, found) else "same", FORMS)
