"""Every query of a dashboard has an answer that is right, for jobs of seconds and of hours.

Evaluated by promtool on series of made-up runs, as Grafana asks over its default range.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.monitoring.made_up_runs import (
    COUNTED,
    LAST_RUN,
    RUNS,
    STEP_SECONDS,
    WORKERS,
    MadeUpRun,
)
from tests.support.monitoring.promql import metrics_in
from tests.support.monitoring.promtool import promtool
from tests.support.monitoring.rules import FILES as RULES
from tools.dashboards.panels import FILES, PanelQuery, load, queries

pytestmark = pytest.mark.needs("prometheus")

_RANGE = "6h"
_STEP = "1m"
"""What Grafana chooses for that range on a panel of a third of a screen."""
_VARIABLES = {
    "namespace": "shop",
    "job": "products",
    "attempt": "1",
    "__range": _RANGE,
    "__interval": _STEP,
    "__rate_interval": "75s",
}


@pytest.mark.parametrize("length", RUNS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_query_has_an_answer(path: Path, length: str, tmp_path: Path) -> None:
    run = RUNS[length]
    asked = list(queries(load(path)))
    assert asked
    tests = [_expect(f"count({_answer(query)} > -Inf) > bool 0", run, 1) for query in asked]
    _evaluate(tmp_path, run.series(), tests)


@pytest.mark.parametrize("length", RUNS)
def test_rates_are_of_all_workers_also_of_those_scraped_once(length: str, tmp_path: Path) -> None:
    run = RUNS[length]
    wanted = WORKERS * COUNTED / run.seconds
    query = _query("job", "Rows per second")
    highest = f"max(max_over_time(({query.expression(_VARIABLES)})[{_RANGE}:{_STEP}]))"
    is_right = f"abs({highest} / {wanted} - 1) < bool 0.05"
    _evaluate(tmp_path, run.series(metrics_in(is_right)), [_expect(is_right, run, 1)])


_COMPARED = (
    "Sent along the graph axis",
    "Sent along the feature axis",
    "Waited for others",
    "Imbalance",
)


@pytest.mark.parametrize("length", RUNS)
@pytest.mark.parametrize("title", _COMPARED)
def test_workers_that_do_the_same_look_the_same(title: str, length: str, tmp_path: Path) -> None:
    """Whenever they were scraped, and also where their attempt never published."""
    run = RUNS[length]
    text = f"({_query('job', title).expression(_VARIABLES)})"
    is_even = f"max({text}) / min({text}) < bool 1.05"
    if title == "Imbalance":
        is_even = f"max({text}) < bool 1.05"
    series = run.series(metrics_in(is_even))
    _evaluate(tmp_path, series, [_expect(is_even, run, 1)])
    failed = {name: s for name, s in series.items() if "_last_run_" not in name}
    live = [_expect(is_even, run, 1)] if length == "2 h" else [_nothing(text, run)]
    _evaluate(tmp_path, failed, live)


def test_totals_of_a_short_run_are_those_of_its_last_snapshot(tmp_path: Path) -> None:
    run = RUNS["25 s"]
    text = _query("job", "What moved").expression(_VARIABLES)
    series = run.series(metrics_in(text))
    _evaluate(tmp_path, series, [_expect(f"max({text})", run, LAST_RUN)])


def test_lateness_is_counted_across_a_restart_of_the_operator(tmp_path: Path) -> None:
    """The new process has listed nothing for a minute, and exports 0."""
    run = RUNS["25 s"]
    name, values = next(i for i in run.series().items() if "last_resync" in i[0])
    old, new = values.split(), ["_"] * len(values.split())
    restart = len(old) // 2
    old[restart:] = ["stale"]
    for number in range(restart, len(new), 3):
        is_listed = number > restart + 12
        new[number] = str(number * STEP_SECONDS if is_listed else 0)
    other = name.replace('pod="operator"', 'pod="operator-2"')
    series = run.series() | {name: " ".join(old), other: " ".join(new)}
    query = _query("fleet", "Lateness", 1)
    worst = f"max(max_over_time(({query.expression(_VARIABLES)})[{_RANGE}:5s])) < bool 120"
    _evaluate(tmp_path, series, [_expect(worst, run, 1)])


def test_the_age_in_an_index_is_that_of_the_version_pushed_last(tmp_path: Path) -> None:
    """After a rollback, an older version than the one that another job pushed before."""
    run = RUNS["25 s"]
    nights = {"first": (100, 400), "rolled-back": (200, 50), "not-pushed": None}
    series = {}
    for job, push in nights.items():
        who = f'job_namespace="shop", job_name="{job}"'
        series[f'embertide_job_info{{{who}, output="s3://shop/products"}}'] = "1x300"
        for name, value in zip(("last_success", "version"), push or (), strict=False):
            series[f"embertide_push_{name}_timestamp_seconds{{{who}}}"] = f"{value}x300"
    query = _query("fleet", "Age of pushed versions")
    age = f"sum({query.expression(_VARIABLES)}) - time()"
    _evaluate(tmp_path, series, [_expect(age, run, -50)])


def _query(board: str, title: str, number: int = 0) -> PanelQuery:
    path = next(path for path in FILES if path.stem == board)
    return [query for query in queries(load(path)) if query.panel["title"] == title][number]


def _answer(query: PanelQuery) -> str:
    """Of one moment, or of any step of the range."""
    text = query.expression(_VARIABLES)
    if query.target["instant"]:
        return f"({text})"
    return f"last_over_time(({text})[{_RANGE}:{_STEP}])"


def _expect(expr: str, run: MadeUpRun, value: float) -> dict[str, Any]:
    samples = [{"labels": "{}", "value": value}]
    return {"expr": expr, "eval_time": f"{run.moment - 1}s", "exp_samples": samples}


def _nothing(expr: str, run: MadeUpRun) -> dict[str, Any]:
    return {"expr": expr, "eval_time": f"{run.moment - 1}s", "exp_samples": []}


def _evaluate(folder: Path, series: dict[str, str], tests: list[dict[str, Any]]) -> None:
    content = {
        "rule_files": [str(path) for path in RULES],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": f"{STEP_SECONDS}s",
                "input_series": [{"series": s, "values": v} for s, v in series.items()],
                "promql_expr_test": tests,
            }
        ],
    }
    path = folder / "test.yaml"
    path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper))
    promtool("test", "rules", path)
