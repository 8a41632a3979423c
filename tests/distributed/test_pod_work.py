"""Worker containers that do their work: what they publish, what they say, what they find."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from embertide.models.read import read_model
from embertide.models.reference import run_reference
from embertide.spec import metric_names
from embertide.spec.reports import WorkerStatus
from embertide.storage.opening import open_storage
from embertide.versions.catalog import latest
from tests.support.exact import assert_exact
from tests.support.job_files import WIDTH, JobFiles, write_job
from tests.support.pods import LocalPods, files, local_pods, samples
from tests.support.world import NODES, make_features, make_graph

pytestmark = pytest.mark.distributed

ENDING_SECONDS = 10.0


@pytest.fixture
def job(tmp_path: Path) -> JobFiles:
    return write_job(tmp_path / "job", make_graph(), make_features(WIDTH), ids="string")


def check_exact(job: JobFiles) -> None:
    plan = read_model(open_storage(None), job.job.spec.model.uri)
    assert_exact(job.published(), run_reference(plan, [job.graph.layer()] * 2, job.features))


def check_output(status: WorkerStatus, job: JobFiles, version: str) -> None:
    """The status tells what LATEST names."""
    info = latest(open_storage(None), job.job.spec.output.uri)
    assert status.output is not None
    assert info.version == version
    assert status.output.model_dump() == {
        "version": version,
        "uri": info.uri,
        "rows": NODES,
        "dim": info.dim,
        "manifest_digest": info.manifest_digest,
        "current": True,
    }


def check_metrics(text: str, rank: int) -> None:
    """Names are those of the module, and the traffic of layers is there."""
    known = {metric.name for metric in metric_names.WORKER_METRICS}
    found = samples(text)
    families = {re.split(r"[{ ]", name)[0] for name in found}
    assert families <= known
    # Outside a container there is no limit; after the work no stage.
    lacking = {metric_names.MEMORY_LIMIT_BYTES.name, metric_names.STAGE_CURRENT.name}
    assert known - families == lacking
    for metric in metric_names.WORKER_METRICS:
        if metric.name in families:
            assert f"# HELP {metric.name} {metric.help}" in text
            assert f"# TYPE {metric.name} {metric.kind}" in text
    info = f'embertide_worker_info{{attempt="1",job="test",job_uid="9c2f",rank="{rank}"}}'
    assert found[info] == 1
    assert found['embertide_worker_state{state="succeeded"}'] == 1
    assert found['embertide_grid_size{axis="graph"}'] == 2
    assert found["embertide_graph_nodes"] == NODES
    layer = '{axis="graph",layer="2",primitive="spmm"}'
    assert found[f"embertide_exchange_sent_bytes_total{layer}"] > 0
    assert found[f"embertide_exchange_messages_total{layer}"] >= 1
    assert found["embertide_memory_planned_bytes"] > 0


def test_an_attempt_publishes_and_tells(tmp_path: Path, job: JobFiles) -> None:
    with local_pods(tmp_path / "pods", job.job) as made:
        pods = made.attempt("2x1")
        starting = pods[0].until(lambda status: status)
        assert (starting.state, starting.job_uid, starting.attempt) == ("starting", "9c2f", 1)
        assert pods[0].get("/healthz") == (200, "ok\n")
        done = pods[0].until_state("succeeded")
        check_output(done, job, made.versions[0])
        assert done.progress is not None
        assert (done.progress.stage, done.progress.percent) == ("publish", 100)
        assert re.fullmatch(r"[\d-]{10}T[\d:]{8}Z", done.progress.last_update_time)
        assert pods[1].until_state("succeeded").output is None
        check_exact(job)
        for rank, pod in enumerate(pods):
            check_metrics(pod.get("/metrics")[1], rank)
        assert pods[0].get("/healthz", "HEAD") == (200, "")
        assert pods[0].get("/")[0] == pods[0].get("/status", "POST")[0] == 404
        for pod in pods:
            pod.terminate()
            assert pod.ended(ENDING_SECONDS) == 0
            assert pod.termination_log.read_text() == ""
        # A container that is started again says what it said.
        pods[0].start()
        assert pods[0].until(lambda status: status) == done
        pods[0].terminate()
        assert pods[0].ended(ENDING_SECONDS) == 0
        # And one of a pod that replaces it finds what was published.
        check_later_attempts(made, job)


def check_later_attempts(made: LocalPods, job: JobFiles) -> None:
    """What an attempt published is found by the next one, which computes nothing."""
    output = job.folder / "out"
    before = [name for name in files(output) if name != "LATEST"]
    # The attempt ended between its manifest and LATEST.
    (output / "LATEST").unlink()
    (first,) = made.attempt("2x1", [0])
    check_output(first.until_state("succeeded"), job, made.versions[0])
    assert "complete already" in first.log.read_text()
    assert [name for name in files(output) if name != "LATEST"] == before
    first.process.send_signal(signal.SIGTERM)
    assert first.ended(ENDING_SECONDS) == 0
    assert len(files(output)) == len(before) + 1


def test_a_version_of_another_job_is_no_success(tmp_path: Path, job: JobFiles) -> None:
    other = job.job.model_copy(
        update={"metadata": job.job.metadata.model_copy(update={"name": "other"})}
    )
    with local_pods(tmp_path / "pods", job.job) as made:
        (pod,) = made.attempt("1x1")
        pod.until_state("succeeded")
    with local_pods(tmp_path / "others", other) as others:
        others.versions = made.versions
        (pod,) = others.attempt("1x1")
        assert pod.ended(20) == 6
        ending = pod.ending()
        assert (ending.reason, ending.permanent) == ("Output", True)
        assert "was published by the job test, not by other" in ending.message
