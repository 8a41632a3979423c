"""Grafana reads the dashboards: they fit its schema, from the oldest to the newest release."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.support.monitoring.schema import NEWEST, OLDEST, RELEASES, problems, unknown
from tests.support.paths import ROOT
from tools.dashboards.panels import FILES, load, panels, variables

_MINUS_INFINITY = "/thresholds/steps/0/value: None is not of type 'number'"
"""How JSON has the level of the base colour, in every release; this schema forgets it."""
_FORGOTTEN = {OLDEST: (_MINUS_INFINITY,)}
_PASSED_OVER = {
    # Settings that came later, with the value that leaves everything as it was.
    OLDEST: {
        "bargauge.options legend",
        "dashboard allowCustomValue",
        "dashboard definition",
        "heatmap.options selectionMode",
        "stat.options percentChangeColorMode",
        "statetimeline.options perPage",
    },
    "12.3": set(),
    # Of variables of other types, and how tables had a footer, which ours have not.
    NEWEST: {
        "dashboard auto",
        "dashboard auto_count",
        "dashboard auto_min",
        "dashboard definition",
        "table.options footer",
    },
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dashboard_fits_the_schema(path: Path, release: str) -> None:
    known = _FORGOTTEN.get(release, ())
    assert [p for p in problems(load(path), release) if not p.endswith(known)] == []


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_passes_over_is_known(release: str) -> None:
    seen = set[str]().union(*(unknown(load(path), release) for path in FILES))
    assert seen == _PASSED_OVER[release]


@pytest.mark.parametrize("release", RELEASES)
def test_what_does_not_fit_is_seen(release: str) -> None:
    right = load(next(path for path in FILES if path.stem == "job"))
    before = len(problems(right, release))

    def broken() -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        dashboard = copy.deepcopy(right)
        return dashboard, {panel["type"]: panel for panel in panels(dashboard)}

    dashboard, by_type = broken()
    dashboard["refresh"] = 30
    variables(dashboard)[1]["refresh"] = 7
    by_type["stat"]["options"]["graphMode"] = "some"
    by_type["bargauge"]["options"]["valueMode"] = "loud"
    by_type["timeseries"]["fieldConfig"]["defaults"]["custom"]["drawStyle"] = "curve"
    by_type["table"]["fieldConfig"]["defaults"]["custom"]["align"] = "middle"
    by_type["heatmap"]["options"]["yAxis"] = []
    by_type["state-timeline"]["options"]["rowHeight"] = "high"
    by_type["stat"]["targets"][0]["format"] = "rows"
    assert len(problems(dashboard, release)) == before + 9
    dashboard, by_type = broken()
    by_type["stat"]["options"]["colourMode"] = "value"
    assert "stat.options colourMode" in unknown(dashboard, release)


def test_the_page_about_monitoring_names_the_releases() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    assert f"Grafana {OLDEST} and later" in text
    assert all(release in text for release in RELEASES)
