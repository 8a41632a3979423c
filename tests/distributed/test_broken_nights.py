"""The default gate on a real graph: broken nights are held, a month of drift is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from embertide.errors import EmbertideError
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest
from embertide.io.versions.publish import rollback
from tests.support.nights import BROKEN, Night, drifted, run_typed

pytestmark = pytest.mark.distributed

DAYS, FEW_DAYS = 30, 8
"""Of drift in the third tier, and before."""


def test_at_least_nine_of_ten_broken_nights_are_held(tmp_path: Path) -> None:
    output, folder = tmp_path / "out", tmp_path / "night"
    good = Night.of_example()
    first = good.run(folder, output)
    assert (first.held, first.comparison and first.comparison.state) == ([], "first")
    outcomes = {name: _outcome(spoil(good), tmp_path) for name, spoil in BROKEN.items()}
    outcomes["another seed"] = _of_another_seed(good, tmp_path)
    outcomes["an empty relation"] = _of_an_empty_relation(tmp_path)
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome or 'not held'}")
    assert latest(open_storage(None), f"file://{output}").version == first.version
    assert len(outcomes) == 10
    assert sum(map(bool, outcomes.values())) >= 9, outcomes


def _outcome(night: Night, folder: Path) -> str:
    """Why the night's version is not current; "" where it is, which is then undone."""
    output = folder / "out"
    storage, uri = open_storage(None), f"file://{output}"
    before = latest(storage, uri).version
    try:
        report = night.run(folder / "night", output)
    except EmbertideError as error:
        assert latest(storage, uri).version == before
        return f"refused: {error}"
    if not report.held:
        rollback(storage, uri, before)
    return "; ".join(report.held)


def _of_another_seed(good: Night, folder: Path) -> str:
    """A sample of neighbours that is drawn with another seed, in another output."""
    output = folder / "sampled"
    fanout = [3, 3]
    good.run(folder / "night", output, inference={"fanout": fanout, "seed": 1})
    report = good.run(folder / "night", output, inference={"fanout": fanout, "seed": 2})
    return "; ".join(report.held)


def _of_an_empty_relation(folder: Path) -> str:
    """The example with several edge types; what was recommended did not arrive."""
    run_typed(folder / "typed")
    return "; ".join(run_typed(folder / "typed", empty="recommends").held)


def test_a_month_of_ordinary_drift_is_never_held(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    night = Night.of_example()
    night.run(tmp_path / "night", tmp_path / "out")
    for day in range(DAYS if pytestconfig.option.tier == 3 else FEW_DAYS):
        night = drifted(night, day)
        report = night.run(tmp_path / "night", tmp_path / "out")
        assert report.held == [], f"day {day}"
        assert report.current
        assert report.comparison is not None
        if day % 10 == 0:
            print(report.comparison.sentences)
