"""The dashboards can be imported, say what they show, and ask for metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from embertide.spec.metric_names import OPERATOR_METRICS, WORKER_METRICS
from tests.support.monitoring.promql import exposed, metrics_in
from tests.support.monitoring.rules import recorded
from tools.dashboards.panels import FILES, PanelQuery, load, panels, queries, variables

_METRICS = (*WORKER_METRICS, *OPERATOR_METRICS)
_QUERIES = {f"{path.stem}: {query.name}": query for path in FILES for query in queries(load(path))}
_PANELS = {
    f"{path.stem}: {panel['title']}": panel for path in FILES for panel in panels(load(path))
}
_UNITS = {"Bps", "bytes", "none", "ops", "percentunit", "reqps", "s", "short"}


def test_identifiers_never_change() -> None:
    """Links and bookmarks hold them."""
    assert {path.stem: load(path)["uid"] for path in FILES} == {
        "fleet": "embertide-fleet",
        "job": "embertide-job",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dashboard_can_be_imported_anywhere(path: Path) -> None:
    dashboard = load(path)
    assert dashboard["editable"] is False
    source = variables(dashboard)[0]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    for variable in variables(dashboard)[1:]:
        assert variable["refresh"] == 2, "follows the time range"
        assert variable["datasource"]["uid"] == "${datasource}"
        assert metrics_in(variable["definition"]) <= _known()
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_panels_fill_the_grid_without_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in load(path)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", _PANELS)
def test_a_panel_says_what_it_shows_and_in_which_unit(name: str) -> None:
    panel = _PANELS[name]
    assert panel["title"]
    assert re.fullmatch(r"[A-Z].{20,}\.", panel["description"], re.DOTALL)
    assert panel["fieldConfig"]["defaults"]["unit"] in _UNITS
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]


@pytest.mark.parametrize("name", _QUERIES)
def test_a_query_asks_for_metrics_that_exist(name: str) -> None:
    query = _QUERIES[name]
    asked = metrics_in(query.target["expr"])
    assert asked <= _known()
    assert asked or "ALERTS{" in query.target["expr"]


@pytest.mark.parametrize("name", _QUERIES)
def test_a_query_is_one_of_a_template(name: str) -> None:
    """No namespace, job or range is written into it; counters are read as rates or totals."""
    query = _QUERIES[name]
    text = query.target["expr"]
    for metric in _worker_metrics() & metrics_in(text):
        chosen = re.findall(rf"{metric}{{([^}}]*)}}", text)
        assert chosen
        assert all("$namespace" in labels and "$job" in labels for labels in chosen)
    for function in re.findall(r"(?:rate|increase)\((\w+)", text):
        assert _kind(function) in ("counter", "histogram"), function
    assert set(re.findall(r"rate\([^\[]*\[([^\]]+)\]", text)) <= {"$__rate_interval"}


@pytest.mark.parametrize("name", _QUERIES)
def test_a_query_says_by_which_labels_its_series_differ(name: str) -> None:
    query: PanelQuery = _QUERIES[name]
    legend = query.target["legendFormat"]
    if query.panel["type"] == "table":
        assert query.target["format"] == "table"
    else:
        assert legend != "__auto"


def test_the_grid_is_shown_as_heat_maps_and_both_kinds_of_groups_over_time() -> None:
    job = load(next(path for path in FILES if path.stem == "job"))
    matrices: list[dict[str, Any]] = [
        transformation["options"]
        for panel in panels(job)
        for transformation in panel.get("transformations", [])
        if transformation["id"] == "groupingToMatrix"
    ]
    assert len(matrices) == 4
    for matrix in matrices:
        assert (matrix["rowField"], matrix["columnField"]) == ("graph_rank", "feature_rank")
    legends = {query.target["legendFormat"] for query in queries(job)}
    assert {"(., {{feature_rank}})", "({{graph_rank}}, .)"} <= legends


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dashboard_shows_every_metric_of_a_push(path: Path) -> None:
    shown = set[str]().union(*(metrics_in(query.target["expr"]) for query in queries(load(path))))
    pushes = {m.name for m in OPERATOR_METRICS if m.name.startswith("embertide_push_")}
    assert pushes
    assert pushes <= shown


def test_the_dashboards_show_what_jobs_did_not_compute() -> None:
    """Every metric of it on that of a job; on the fleet's, each way of it as jobs."""
    names = {
        f"embertide_last_run_{of}" for of in ("refreshed_rows", "resumed_layer", "kept_layers")
    }
    names.add("embertide_job_confirmed")
    fleet, job = (
        set[str]().union(*(metrics_in(query.target["expr"]) for query in queries(load(path))))
        for path in sorted(FILES)
    )
    assert names <= job
    assert names - {"embertide_last_run_kept_layers"} <= fleet


def _known() -> set[str]:
    return {name for metric in _METRICS for name in exposed(metric)} | set(recorded())


def _worker_metrics() -> set[str]:
    return {name for metric in WORKER_METRICS for name in exposed(metric)}


def _kind(name: str) -> str:
    return next(metric.kind for metric in _METRICS if name in exposed(metric))
