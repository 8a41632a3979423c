"""A disk that fails after it has accepted what was written: no zeros are read instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.failing_disk import missing, reads_after

pytestmark = pytest.mark.tier(2)


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("way", ["written", "waited", "mapped"])
def test_what_a_disk_has_lost_is_not_read_as_zeros(way: str, tmp_path: Path) -> None:
    seen = reads_after(way, tmp_path)
    assert "other" not in seen
    assert seen[-1] in ("No space left on device", "Input/output error")
