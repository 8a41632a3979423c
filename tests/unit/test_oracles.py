"""Programs, plans, identities, costs, fields, help: as frozen (``python -m tools.oracles``)."""

from __future__ import annotations

import difflib
import itertools

import pytest

from embertide.models.dgl_interop import why_no_dgl
from tools.oracles import ORACLES, frozen

PARTS = [
    *((name, share) for name, (_, share) in ORACLES.items() if share),
    *(
        pytest.param(name, 1, marks=pytest.mark.tier(2))
        for name, (_, share) in ORACLES.items()
        if share > 1
    ),
]


@pytest.mark.parametrize(("name", "share"), PARTS)
def test_a_text_is_the_frozen_one(name: str, share: int) -> None:
    before, sections = frozen(name), ORACLES[name][0]()
    # Without DGL its models are not there.
    known = [of for of in before if of in sections or not (why_no_dgl() and "dgl" in of.split())]
    assert list(sections) == known
    for of in known[::share]:
        lines = before[of].splitlines(), sections[of]().splitlines()
        differing = difflib.unified_diff(*lines, f"{of}, frozen", "made", lineterm="", n=1)
        assert "\n".join(itertools.islice(differing, 40)) == ""
