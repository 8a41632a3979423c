"""Whether the ids that a rank loaded follow each other."""

from __future__ import annotations

import pytest
import torch

from embertide.program.steps import source_rows
from embertide.program.steps.source_rows import first_in_order


@pytest.mark.parametrize(
    ("ids", "first"),
    [
        ([7], 7),
        ([0, 1, 2, 3, 4, 5, 6], 0),
        ([3, 4, 5, 6, 7], 3),
        ([], None),
        ([0, 1, 3], None),
        ([0, 1, 2, 4, 5], None),
        ([0, 1, 1, 2], None),
        ([2, 1, 0], None),
    ],
)
def test_they_do_from_the_first_on(
    ids: list[int], first: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_rows, "_CHECKED_IDS", 3)
    assert first_in_order(torch.tensor(ids, dtype=torch.int64)) == first
