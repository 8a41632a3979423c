"""Worker containers of a job with several node types and relations, and features of edges."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from embertide.spec.manifest import load_manifest
from embertide.spec.reports import OutputReport, WorkerStatus
from embertide.spec.run_status import TypeOutput
from tests.support.pods import LocalPods, Pod, end_well, local_pods
from tests.support.typed_files import check_rows, write_typed_job
from tests.support.typed_programs import BOUGHT_BY, BUYS, FOLLOWS, carrying_on
from tests.support.typed_world import COUNTS, expected_of

pytestmark = pytest.mark.distributed

PUBLISHED = {"user": 5, "item": 7}
"""Of the three types that the model has results of, with their widths."""
EDGES = {BUYS: 150, BOUGHT_BY: 150, FOLLOWS: 123}
"""Relations that these two need."""


def check_told(status: WorkerStatus) -> None:
    """Rank 0 tells rows by type and edges by relation, and the totals of both."""
    output, report = status.output, status.report
    assert output is not None
    assert output.types is not None
    assert sorted(output.types, key=lambda one: one.name) == [
        TypeOutput(name=name, rows=COUNTS[name], dim=PUBLISHED[name]) for name in sorted(PUBLISHED)
    ]
    assert (output.rows, output.dim) == (61 + 40, 7)
    assert report is not None
    assert report.node_types is not None
    assert {one.name: one.nodes for one in report.node_types} == {"user": 61, "item": 40}
    assert report.relations is not None
    assert {one.name: one.edges for one in report.relations} == EDGES
    assert (report.nodes, report.edges) == (61 + 40, sum(EDGES.values()))


def relations_of(pod: Pod, name: str) -> set[str]:
    """The relations that a metric has labels of, but none."""
    return {
        sample.labels["relation"]
        for family in text_string_to_metric_families(pod.get("/metrics")[1])
        for sample in family.samples
        if sample.name == name and sample.labels["relation"]
    }


def check_found_again(made: LocalPods, output: OutputReport) -> None:
    """A later attempt, which has no run to tell of, says the same of the version."""
    (made.output / "LATEST").unlink()
    (first,) = made.attempt("2x1", [0])
    found = first.until_state("succeeded").output
    assert found is not None
    assert found.types is not None
    assert found.model_copy(update={"attempt": 1}) == output


def test_a_typed_job_publishes_by_type_and_tells(tmp_path: Path) -> None:
    manifest = write_typed_job(tmp_path, carrying_on(), edge_features=True)
    manifest["spec"]["output"]["nodeTypes"] = list(PUBLISHED)
    with local_pods(tmp_path / "pods", load_manifest(yaml.safe_dump(manifest))) as made:
        # As on two hosts.
        pods = made.attempt("2x1", EMBERTIDE_IN_PLACE="0")
        done = pods[0].until_state("succeeded")
        pods[1].until_state("succeeded")
        check_told(done)
        for name in PUBLISHED:
            check_rows(tmp_path, name, expected_of(carrying_on())[name])
        for pod in pods:
            # What moves for edges by relation, planned and sent.
            for sent in ("exchange_sent_bytes_total", "exchange_planned_sent_bytes"):
                assert relations_of(pod, f"embertide_{sent}") >= EDGES.keys()
        end_well(pods)
        assert OutputReport.parse(pods[0].termination_log.read_text()) == done.output
        check_found_again(made, done.output)
