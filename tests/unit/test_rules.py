"""Alerts, recording rules and runbooks fit each other; promtool fires every alert by its fault."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from embertide.spec.metric_names import OPERATOR_METRICS, WORKER_METRICS
from tests.support.monitoring.alert_cases import CASES, FIRINGS, NOT_PUSHED, SILENT, Case
from tests.support.monitoring.healthy import JOB, healthy
from tests.support.monitoring.promql import exposed, metrics_in
from tests.support.monitoring.promtool import promtool
from tests.support.monitoring.rules import (
    FILES,
    RUNBOOKS,
    alerts,
    impatient_copies,
    recorded,
    rules,
)
from tools.dashboards.panels import FILES as DASHBOARDS
from tools.dashboards.panels import load, queries

pytestmark = pytest.mark.needs("prometheus")

_SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
_LEVEL = r"(worker|job|job_axis_primitive|output|namespace|namespace_outcome)"


def test_promtool_finds_nothing_to_mend() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", *FILES)


def test_promtool_understands_every_query_of_a_panel(tmp_path: Path) -> None:
    """Variables are replaced as Grafana does it."""
    values = {"namespace": "shop", "job": "products", "attempt": "1"}
    values |= {"__range": "6h", "__interval": "15s", "__rate_interval": "1m"}
    asked = [query for path in DASHBOARDS for query in queries(load(path))]
    found = [
        {"record": f"panel:query:number_{number}", "expr": query.expression(values)}
        for number, query in enumerate(asked)
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": found}]}))
    assert f"{len(asked)} rules found" in promtool("check", "rules", path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}: {case.fault}")
def test_a_fault_fires_its_alert_and_no_other(case: Case, tmp_path: Path) -> None:
    _run(tmp_path, case.all_series(), {case.silent_at: None, case.at: case})


@pytest.mark.parametrize("case", SILENT, ids=lambda case: case.fault)
def test_what_is_no_fault_fires_nothing(case: Case, tmp_path: Path) -> None:
    _run(tmp_path, case.all_series(), {5: None, 30: None, case.at: None})


def test_a_healthy_cluster_fires_nothing(tmp_path: Path) -> None:
    _run(tmp_path, healthy(), dict.fromkeys(range(0, 121, 5)))


def test_a_page_names_the_newest_job_that_failed(tmp_path: Path) -> None:
    labels = {"job_namespace": "shop", "output": "s3://shop/products", "reason": "OutOfMemory"}
    annotations = dict(alerts()["EmbertideJobFailed"]["annotations"])
    annotations["summary"] = "Jobs for s3://shop/products in shop fail: OutOfMemory"
    annotations["description"] = (
        "EmbeddingJob nightly-5 in shop failed for good with reason OutOfMemory, and nothing was"
        " published at s3://shop/products since. Readers still see the version before it."
    )
    expected = {"exp_labels": labels | {"severity": "critical"}, "exp_annotations": annotations}
    test = {"alertname": "EmbertideJobFailed", "eval_time": "40m", "exp_alerts": [expected]}
    _promtool_test(tmp_path, FIRINGS, alert_rule_test=[test])


@pytest.mark.parametrize(
    "series",
    [
        {f"embertide_push_last_success_timestamp_seconds{{{JOB}}}": "180x120"},
        {NOT_PUSHED: "", NOT_PUSHED.replace("StoreUnavailable", "Held"): "0x120"},
        {NOT_PUSHED: "", NOT_PUSHED.replace("StoreUnavailable", "Pushing"): "0x120"},
        {NOT_PUSHED: "", NOT_PUSHED.replace("StoreUnavailable", "Pushed"): "1x120"},
    ],
    ids=["pushed later", "held", "under way", "pushed"],
)
def test_a_push_that_is_no_failure_fires_nothing(tmp_path: Path, series: dict[str, str]) -> None:
    case = next(case for case in CASES if case.alert == "EmbertideNotPushed")
    _run(tmp_path, case.all_series() | series, dict.fromkeys(range(5, 121, 5)))


def test_every_alert_has_a_fault() -> None:
    assert {case.alert for case in CASES} == set(alerts())


@pytest.mark.parametrize("name", alerts())
def test_an_alert_names_its_runbook_its_severity_and_what_it_is_about(name: str) -> None:
    alert = alerts()[name]
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{name}.md")
    assert re.fullmatch(r"[1-9]\d*m", alert["for"])
    assert alert["annotations"]["summary"][-1] not in ".!"
    text = (RUNBOOKS / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == _SECTIONS
    assert all(len(part.split()) > 8 for part in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:])


def test_every_runbook_has_an_alert() -> None:
    assert sorted(path.stem for path in RUNBOOKS.glob("*.md")) == sorted(alerts())


def test_the_page_about_monitoring_lists_every_alert() -> None:
    text = (RUNBOOKS.parent / "monitoring.md").read_text()
    listed = re.findall(r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \| .+ \|$", text, re.M)
    assert {name: severity for name, file, severity in listed if file == name} == {
        name: alert["labels"]["severity"] for name, alert in alerts().items()
    }


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_links_of_a_runbook_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text()):
        assert (path.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("name", recorded())
def test_recording_rules_are_named_level_metric_operation(name: str) -> None:
    assert re.fullmatch(rf"{_LEVEL}:embertide_[a-z0-9_]+:[a-z0-9_]+", name)


def test_rules_ask_for_metrics_that_exist() -> None:
    known = {name for metric in (*WORKER_METRICS, *OPERATOR_METRICS) for name in exposed(metric)}
    for rule in rules():
        asked = metrics_in(rule["expr"])
        assert asked, rule
        assert asked <= known | set(recorded()), rule


def test_copies_for_tests_differ_only_in_durations(tmp_path: Path) -> None:
    shorter = {"5m": "9s", "10m": "19s"}
    copies = rules(impatient_copies(tmp_path, {"EmbertideJobFailed": "2s"}, shorter))
    for copy, rule in zip(copies, rules(), strict=True):
        if rule.get("alert") == "EmbertideJobFailed":
            assert copy.pop("for") == "2s"
            rule.pop("for")
        rule["expr"] = rule["expr"].replace("[5m]", "[9s]").replace("[10m]", "[19s]")
        assert copy == rule


def _run(folder: Path, series: dict[str, str], moments: dict[int, Case | None]) -> None:
    """Let promtool evaluate the rules; at each minute exactly a case's alert fires, or none."""
    firing = 'ALERTS{alertstate="firing"}'
    tests: list[dict[str, Any]] = []
    for minute, case in moments.items():
        names = [{"labels": f'{{alertname="{case.alert}"}}', "value": 1}] if case else []
        tests.append(_expect(f"count by (alertname) ({firing})", minute, names))
        if case is not None and case.labels:
            labels = ", ".join(case.labels)
            found = ", ".join(f'{name}="{value}"' for name, value in case.labels.items())
            wanted = [{"labels": f"{{{found}}}", "value": 1}]
            tests.append(_expect(f"count by ({labels}) ({firing})", minute, wanted))
    _promtool_test(folder, series, promql_expr_test=tests)


def _promtool_test(folder: Path, series: Mapping[str, str], **tests: list[dict[str, Any]]) -> None:
    """Run promtool's tests of one kind on these series."""
    test = {
        "interval": "1m",
        "input_series": [{"series": s, "values": v} for s, v in series.items()],
        **tests,
    }
    content = {
        "rule_files": [str(path) for path in FILES],
        "evaluation_interval": "1m",
        "tests": [test],
    }
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump(content))
    promtool("test", "rules", path)


def _expect(expr: str, minute: int, samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"expr": expr, "eval_time": f"{minute}m", "exp_samples": samples}
