"""Worker containers that do their work: what they publish, what they say, what they find."""

from __future__ import annotations

import re
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

import embertide
from embertide.facts.telemetry.container import working_set_bytes
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest
from embertide.io.versions.manifest import read_manifest
from embertide.models.read import read_model
from embertide.models.reference import run_reference
from embertide.spec import metric_names
from embertide.spec.job_digest import job_digest
from embertide.spec.refresh import Refresh
from embertide.spec.reports import Ending, OutputReport, WorkerStatus
from tests.support.commands import members
from tests.support.exact import assert_exact
from tests.support.job_files import WIDTH, JobFiles, write_job
from tests.support.patience import SOON_SECONDS
from tests.support.pods import LocalPods, Pod, end_well, files, local_pods
from tests.support.ports import free_port
from tests.support.world import NODES, make_features, make_graph

pytestmark = pytest.mark.distributed

HOLDING_BYTES = 60 << 20
"""Of a container whose run is over."""


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
        "not_current": None,
        "job_uid": "9c2f",
        "attempt": status.attempt,
        "types": None,
        "not_removed": None,
        "confirmed": False,
        "held": None,
    }


def check_metrics(text: str, rank: int) -> None:
    """Names and labels are those of the module, and the traffic of layers is there."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    known = {metric.name.removesuffix("_total"): metric for metric in metric_names.WORKER_METRICS}
    filled = {name for name, family in families.items() if family.samples}
    # Outside a container there is no limit; after the work no stage; without s3:// no S3; and no
    # earlier attempt has kept layers.
    lacking = {metric_names.MEMORY_LIMIT_BYTES.name, metric_names.STAGE_CURRENT.name}
    lacking.add(metric_names.RESUMED_LAYER.name)
    lacking |= {name for name in known if name.startswith("embertide_storage_")}
    if not working_set_bytes():
        lacking |= {name for name in known if "_memory_container_" in name}
    assert known.keys() - filled == lacking
    for name in filled:
        metric = known[name]
        assert (families[name].type, families[name].documentation) == (metric.kind, metric.help)
        for sample in families[name].samples:
            assert sample.labels.keys() - {"le"} == set(metric.labels)
    found = WorkerSamples(text, rank)
    assert found("worker_info", job_uid="9c2f", grid="2x1", device="cpu") == 1
    assert found("worker_state", state="succeeded") == 1
    assert found("grid_size", axis="graph") == 2
    assert found("graph_nodes") == NODES
    layer = {"axis": "graph", "layer": "2", "primitive": "spmm"}
    assert found("exchange_sent_bytes_total", **layer) > 0
    assert found("exchange_planned_sent_bytes", **layer) > 0
    groups = found("exchange_groups_total", **layer)
    assert found("exchange_sent_messages_total", **layer) >= 1
    assert found("exchange_wait_seconds_count", **layer) >= groups
    assert 1 <= found("exchange_depth", **layer) <= found("exchange_depth_limit")
    assert found("exchange_group_largest_bytes", **layer) <= found("exchange_group_limit_bytes")
    assert found("memory_planned_bytes") > 0


class WorkerSamples:
    """A worker's samples by short name and those labels that not all of them carry."""

    def __init__(self, text: str, rank: int) -> None:
        who = {"job_namespace": "", "job_name": "test", "attempt": "1", "rank": str(rank)}
        self._who = who | {"graph_rank": str(rank), "feature_rank": "0"}
        self._found = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def __call__(self, name: str, **labels: str) -> float:
        wanted = self._who | labels
        (value,) = (
            value
            for found, having, value in self._found
            if found == f"embertide_{name}" and wanted.items() <= having.items()
        )
        return value


def check_work(pods: list[Pod], job: JobFiles) -> None:
    """The workers' counts add up to the whole graph's."""
    texts = [pod.get("/metrics")[1] for pod in pods]
    found = [WorkerSamples(text, rank) for rank, text in enumerate(texts)]
    edges = found[0]("graph_edges")

    def summed(name: str, stage: str) -> float:
        return sum(of(f"processed_{name}_total", stage=stage) for of in found)

    assert [summed("rows", s) for s in ("features", "infer", "publish")] == [
        NODES,
        2 * NODES,
        NODES,
    ]
    assert [summed("edges", s) for s in ("ingest", "infer")] == [edges, 2 * edges]


def check_summary(pods: list[Pod]) -> None:
    """What rank 0 reports at the end is what all workers' metrics say."""
    status = pods[0].status()
    assert status is not None
    assert status.report is not None
    report = status.report
    texts = [pod.get("/metrics")[1] for pod in pods]
    sent = sum(
        sample.value
        for text in texts
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "embertide_exchange_sent_bytes_total"
    )
    assert sum(item.bytes for item in report.exchange) == sent > 0
    assert {item.name for item in report.stages} >= {"features", "ingest", "csr", "infer"}
    (spmm,) = (item for item in report.exchange if (item.axis, item.primitive) == ("graph", "spmm"))
    assert spmm.bytes / 2 <= spmm.most_bytes <= spmm.bytes
    assert spmm.planned_bytes
    assert (report.attempt, report.grid, report.nodes) == (1, "2x1", NODES)
    assert report.memory is not None
    assert report.memory.planned_bytes > 0
    # These pods share the control group of the tests.
    container, process = report.memory.container_peak_bytes, report.memory.peak_bytes
    counted = working_set_bytes() > 0
    assert ((container or 0) > process) == (container is not None) == counted
    assert report.workers is not None
    assert [item.rank for item in report.workers] == [0, 1]
    along = sum(item.bytes for item in report.exchange if item.axis == "graph")
    assert sum(item.graph_bytes for item in report.workers) == along > 0


@pytest.mark.tier(1)
def test_an_attempt_publishes_and_tells(tmp_path: Path, job: JobFiles) -> None:
    with local_pods(tmp_path / "pods", job.job) as made:
        # As on two hosts.
        pods = made.attempt("2x1", EMBERTIDE_IN_PLACE="0")
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
        check_work(pods, job)
        check_summary(pods)
        assert pods[0].get("/healthz", "HEAD") == (200, "")
        assert pods[0].get("/")[0] == pods[0].get("/status", "POST")[0] == 404
        end_well(pods)
        assert OutputReport.parse(pods[0].termination_log.read_text()) == done.output
        assert pods[1].termination_log.read_text() == ""
        # A pod that replaces it finds what was published.
        check_later_attempts(made, job)


def test_rank_0_ends_once_and_says_what_it_published(tmp_path: Path, job: JobFiles) -> None:
    """Whoever cannot reach /status reads the termination message; nothing else is lost."""
    with local_pods(tmp_path / "pods", job.job, new=True) as made:
        pods = made.attempt("2x1", EMBERTIDE_STAY_SECONDS="1", EMBERTIDE_IN_PLACE="0")
        done = pods[0].until_state("succeeded")
        pods[1].until_state("succeeded")
        assert pods[0].ended(SOON_SECONDS) == 0
        assert OutputReport.parse(pods[0].termination_log.read_text()) == done.output
        assert Ending.parse(pods[0].termination_log.read_text()) is None
        # Kubernetes starts it again: it says and serves what it did, and does not end again.
        pods[0].start()
        assert pods[0].until(lambda status: status) == done
        for rank, pod in enumerate(pods):
            check_metrics(pod.get("/metrics")[1], rank)
            check_holding(pod)
        check_work(pods, job)
        check_summary(pods)
        time.sleep(2)
        assert pods[0].status() == done
        end_well(pods)


def check_holding(pod: Pod) -> None:
    """The container is one small process, which holds nothing of the run."""
    pod.until(lambda _status: members(pod.process.pid) == [pod.process.pid])
    memory = psutil.Process(pod.process.pid).memory_full_info()
    assert memory.uss < HOLDING_BYTES
    mapped = [item.path for item in psutil.Process(pod.process.pid).memory_maps()]
    assert not [path for path in mapped if "/torch/" in path]


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
    assert first.ended(SOON_SECONDS) == 0
    assert len(files(output)) == len(before) + 1


def test_a_later_job_confirms_what_has_not_changed(tmp_path: Path, job: JobFiles) -> None:
    spec = job.job.spec.model_copy(update={"refresh": Refresh()})
    unforced = job.job.model_copy(update={"spec": spec})
    with local_pods(tmp_path / "first", unforced) as made:
        (pod,) = made.attempt("1x1")
        pod.until_state("succeeded")
        version = made.versions[0]
    with local_pods(tmp_path / "second", unforced) as made:
        pods = made.attempt("2x1")
        output = pods[0].until_state("succeeded").output
        assert output is not None
        assert (output.version, output.confirmed, output.current) == (version, True, True)
        assert files(job.folder / "out/versions")[0].startswith(version)
        end_well(pods)
        assert OutputReport.parse(pods[0].termination_log.read_text()) == output
    assert [info.version for info in embertide.list_versions(job.folder / "out")] == [version]


def test_a_version_of_another_spec_is_left_and_a_new_one_made(
    tmp_path: Path, job: JobFiles
) -> None:
    """The job was edited after an attempt had published unnoticed."""
    with local_pods(tmp_path / "pods", job.job) as made:
        (pod,) = made.attempt("1x1")
        pod.until_state("succeeded")
        output = job.job.spec.output.model_copy(update={"dtype": "float16"})
        spec = job.job.spec.model_copy(update={"output": output})
        made.edit(job.job.model_copy(update={"spec": spec}))
        (pod,) = made.attempt("1x1")
        done = pod.until_state("succeeded")
        assert done.output is not None
        assert done.output.version == made.versions[1]
        assert "was made from another spec of this job; it stays" in pod.log.read_text()
        storage = open_storage(None)
        found = [
            read_manifest(storage, job.job.spec.output.uri, version)[0] for version in made.versions
        ]
        assert [manifest["dtype"] for manifest in found] == ["float32", "float16"]
        assert found[0]["jobDigest"] == job_digest(job.job)
        # As a pod of the same attempt with the spec of before; it cannot write that version twice.
        made.edit(job.job)
        again = made.replace(0)
        assert again.ended(20) == 8
        ending = again.ending()
        assert (ending.reason, ending.permanent) == ("WorkerFailed", False)
        assert "the next attempt writes a version of its own" in ending.message


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


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the system has no IPv6")
def test_workers_meet_over_ipv6(tmp_path: Path, job: JobFiles) -> None:
    with local_pods(tmp_path / "pods", job.job) as made:
        port = free_port()
        # The process group has an address of the interface, as in a pod that has one family.
        env = {"EMBERTIDE_RENDEZVOUS": f"[::1]:{port}", "GLOO_SOCKET_IFNAME": "lo"}
        # They stay in their rendezvous until the last one comes.
        pods = made.attempt("3x1", [0, 1], **env)
        met = pods[0].until(lambda status: peers(pods[1], port) if status.progress else set())
        assert met == {"::1"}
        made.replace(2)
        pods[0].until_state("succeeded")
        assert len(job.published())


def peers(pod: Pod, port: int) -> set[str]:
    """The addresses at which a pod's processes are connected to a port."""
    found = set()
    for process in members(pod.process.pid):
        with suppress(psutil.NoSuchProcess):  # it ended while we looked
            for connection in psutil.Process(process).net_connections("tcp"):
                if connection.raddr and connection.raddr.port == port:
                    found.add(connection.raddr.ip)
    return found
