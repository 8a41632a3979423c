"""What a worker container is made of, piece by piece: plans, cleaning up, settings, endings."""

from __future__ import annotations

from pathlib import Path

import pytest

import embertide
from embertide.engine.planning.estimate import estimate_program, fitting_grid
from embertide.engine.planning.inputs import list_inputs
from embertide.engine.planning.sizing import container_bytes
from embertide.errors import AccessDenied, InputError, ManifestError, ProcessDied, WorkerFailed
from embertide.facts.telemetry.container import working_set_bytes
from embertide.facts.telemetry.memory import MemoryWatch
from embertide.facts.telemetry.progress import Progress
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest
from embertide.io.versions.publish import publish
from embertide.io.versions.reading import read_version
from embertide.launch.failure import Cause
from embertide.launch.run_folder import RunFolder, write_text
from embertide.launch.signals import StopRequest
from embertide.models.read import read_model
from embertide.pod import work
from embertide.pod.attempt import WorkerAttempt
from embertide.pod.board import Board
from embertide.pod.endings import (
    INTERNAL,
    AttemptFailed,
    ending_of,
    explains_itself,
    out_of_memory,
)
from embertide.pod.http import Page
from embertide.pod.memory import oom_kills, peak_memory, usable_cores
from embertide.pod.progress import ProgressReporter
from embertide.pod.settings import ContainerFiles, WorkSettings, read_settings
from embertide.spec.grid import GridShape
from embertide.spec.job_digest import job_digest
from embertide.spec.manifest import EmbeddingJob, load_manifest
from embertide.spec.reports import Ending, OutputReport, PlanResult, WorkerStatus
from embertide.spec.version_names import new_version
from tests.support.pods import files, plan_pod
from tests.support.small_job import NODES, WIDTH, SmallJob
from tests.support.versions import manifest_of, write_parts

pytestmark = pytest.mark.distributed

VERSION = new_version()
ENV = {
    "EMBERTIDE_OPERATOR_VERSION": embertide.__version__,
    "EMBERTIDE_JOB_UID": "u",
    "EMBERTIDE_ATTEMPT": "2",
    "EMBERTIDE_GRID": "3x2",
    "EMBERTIDE_RANK": "4",
    "EMBERTIDE_VERSION": VERSION,
    "EMBERTIDE_EARLIER_VERSIONS": "20261121T000000Z-000000,20261121T000001Z-000000",
    "EMBERTIDE_RENDEZVOUS": "job-0.job:29500",
    "EMBERTIDE_MEMORY_LIMIT": str(5 << 29),
    "EMBERTIDE_THREADS": "",
}


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    return SmallJob.make(tmp_path / "job")


def job_of(small: SmallJob) -> EmbeddingJob:
    return load_manifest(Path(small.manifest))


# Settings.


def test_settings_are_read() -> None:
    found = read_settings(ENV)
    assert (str(found.grid), found.rank, found.attempt) == ("3x2", 4, 2)
    assert found.description == "worker 4 of 6 (graph 2, feature 0)"
    assert found.earlier == ("20261121T000000Z-000000", "20261121T000001Z-000000")
    assert found.rendezvous == ("job-0.job", 29500)
    assert (found.memory_limit, found.threads, found.http_port) == (5 << 29, None, 8080)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("EMBERTIDE_JOB_UID", "", "is not set; must be the job's uid"),
        ("EMBERTIDE_ATTEMPT", "0", "must be a number of at least 1"),
        ("EMBERTIDE_GRID", "0x2", "'0x2' must be GRAPHxFEATURE"),
        ("EMBERTIDE_RANK", "6", "is 6; the grid 3x2 has no such worker"),
        ("EMBERTIDE_VERSION", "", "must be one version's name"),
        ("EMBERTIDE_EARLIER_VERSIONS", "v1", "has 'v1', which is no version's name"),
        ("EMBERTIDE_RENDEZVOUS", "job-0", "is 'job-0'; must be host:port of rank 0"),
        ("EMBERTIDE_TABLES", "7", "is no JSON of versions by fields"),
    ],
)
def test_each_wrong_setting_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_settings(ENV | {name: value})
    ((found, text),) = caught.value.problems
    assert found == name
    assert message in text


# Endings.


def test_endings_tell_what_the_operator_needs() -> None:
    assert ending_of(InputError("edges/1: row 3"), 1) == Ending(
        reason="Input", message="edges/1: row 3", exit_code=3, rank=1, permanent=True
    )
    assert ending_of(AccessDenied("no")).reason == "AccessDenied"
    lost = AttemptFailed(Cause(WorkerFailed("lost"), 2, peer=True))
    assert ending_of(lost) == Ending(
        reason="WorkerFailed", message="lost", exit_code=8, rank=2, peer=True
    )
    inside = AttemptFailed(Cause(WorkerFailed("KeyError"), 2, internal=True))
    assert (ending_of(inside).reason, ending_of(inside).exit_code) == (INTERNAL, 1)


def test_running_out_of_memory_says_what_to_do() -> None:
    ending = out_of_memory(read_settings(ENV), "infer", 5 << 29)
    assert ending.message == (
        "worker 4 of 6 (graph 2, feature 0) ran out of memory during infer: its container used"
        " 2.5Gi, its memory limit is 2.5Gi; use more workers or raise"
        " spec.workers.resources.limits.memory"
    )
    unknown = out_of_memory(read_settings(ENV), "", None).message
    assert "ran out of memory while it started: its memory limit is 2.5Gi; use" in unknown
    assert (ending.reason, ending.permanent, ending.exit_code) == ("OutOfMemory", False, 8)


@pytest.mark.parametrize(
    ("error", "explains"),
    [
        (EOFError("unexpected EOF"), False),
        (BrokenPipeError(), False),
        (ProcessDied("the launcher"), False),
        (AttemptFailed(Cause(WorkerFailed("killed"), 2, silent=True)), False),
        (AttemptFailed(Cause(WorkerFailed("KeyError"), 2, internal=True)), False),
        (AttemptFailed(Cause(InputError("row 3"), 2)), True),
        (InputError("row 3"), True),
    ],
)
def test_only_an_error_without_a_cause_may_be_memory(error: Exception, explains: bool) -> None:
    assert explains_itself(error) is explains


def test_an_allocation_that_fails_is_out_of_memory() -> None:
    failed = AttemptFailed(Cause(WorkerFailed("no room"), 2, internal=True, memory=True))
    assert ending_of(failed) == Ending(reason="OutOfMemory", message="no room", exit_code=8, rank=2)


def test_control_groups_of_both_versions_are_read(tmp_path: Path) -> None:
    assert oom_kills(tmp_path) == 0
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "memory").mkdir(parents=True)
    (one / "cpu").mkdir()
    two.mkdir()
    (one / "memory" / "memory.oom_control").write_text(
        "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
    )
    (one / "memory" / "memory.max_usage_in_bytes").write_text("4096\n")
    (two / "memory.peak").write_text("8192\n")
    assert peak_memory(tmp_path) is None
    assert (peak_memory(one), peak_memory(two)) == (4096, 8192)
    (two / "memory.events").write_text("low 0\nmax 11\noom 1\noom_kill 1\noom_group_kill 0\n")
    assert (oom_kills(one), oom_kills(two)) == (2, 1)
    (one / "cpu" / "cpu.cfs_quota_us").write_text("50000\n")
    (one / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    (two / "cpu.max").write_text("max 100000\n")
    assert usable_cores(one) == 1
    assert usable_cores(two) == usable_cores(tmp_path) >= 1


def test_memory_of_a_container_is_without_file_pages_that_can_go(tmp_path: Path) -> None:
    assert working_set_bytes(tmp_path) == 0
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "memory").mkdir(parents=True)
    two.mkdir()
    (one / "memory" / "memory.usage_in_bytes").write_text("1000\n")
    (one / "memory" / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 300\n")
    (two / "memory.current").write_text("1000\n")
    (two / "memory.stat").write_text("anon 500\ninactive_file 200\nactive_file 300\n")
    assert (working_set_bytes(one), working_set_bytes(two)) == (700, 800)


def test_the_peak_of_a_container_is_kept() -> None:
    sizes = iter([100, 900, 200])
    with MemoryWatch(period_seconds=60, container=lambda: next(sizes)) as watch:
        watch.look_at_container()
    assert watch.container_peak == 900
    with MemoryWatch(period_seconds=60) as alone:
        pass
    assert alone.container_peak == 0


def test_progress_becomes_percent_and_never_goes_back() -> None:
    board = Board(read_settings(ENV))
    report = ProgressReporter(board)
    seen = []
    for stage, fraction in [("start", 0), ("plan", 0), ("features", 0.5), ("infer", 0.5)]:
        report(Progress(stage, 1 if stage == "infer" else 0, 2, fraction))
        progress = board.status.progress
        assert progress is not None
        assert progress.stage == stage
        assert progress.last_update_time.endswith("Z")
        seen.append(progress.percent)
    assert seen == sorted(seen)
    assert seen[-1] > 50


# Containers that are started again.


def first_answer(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerStatus:
    """What /status says at the moment its server starts."""
    answers: list[WorkerStatus] = []

    def serve(_port: int, pages: dict[str, Page]) -> int:
        answers.append(WorkerStatus.model_validate_json(pages["/status"]()[2]))
        return 0

    monkeypatch.setattr(work, "serve", serve)
    files = ContainerFiles(scratch / "job.yaml", scratch, scratch / "termination-log")
    work.Worker(read_settings(ENV), files, StopRequest())
    (answer,) = answers
    return answer


def test_a_container_started_again_never_says_that_it_is_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board(read_settings(ENV))
    assert first_answer(tmp_path, monkeypatch) == board.status
    write_text(tmp_path / "begun.json", board.status.to_text())
    begun = first_answer(tmp_path, monkeypatch)
    assert begun.failure is not None
    assert "exited without reporting an error during the attempt" in begun.failure.message
    board.succeeded(None)
    write_text(tmp_path / "ended.json", board.status.to_text())
    assert first_answer(tmp_path, monkeypatch) == board.status


# Cleaning up.


def attempt_of(small: SmallJob, tmp_path: Path, rank: int) -> WorkerAttempt:
    """An attempt of a 2x1 grid whose worker wrote its part and ended."""
    settings: WorkSettings = read_settings(
        ENV | {"EMBERTIDE_GRID": "2x1", "EMBERTIDE_RANK": str(rank)}
    )
    reporter, folder = ProgressReporter(Board(settings)), RunFolder(tmp_path)
    found = WorkerAttempt(settings, job_of(small), folder, reporter, lambda: None)
    found.may_have_written = True
    return found


@pytest.mark.parametrize(
    ("rank", "delivered", "stays"), [(0, True, False), (1, False, False), (1, True, True)]
)
def test_parts_of_an_incomplete_version_go(
    rank: int, delivered: bool, stays: bool, small: SmallJob, tmp_path: Path
) -> None:
    """Rank 1's stay once rank 0 may be publishing them; rank 0 removes them or makes them count."""
    uri = job_of(small).spec.output.uri
    write_parts(open_storage(None), uri, VERSION)
    if delivered:
        RunFolder(tmp_path).mark_delivered(rank)
    assert attempt_of(small, tmp_path, rank).clean_up() is None
    assert bool(files(small.output)) == stays


def test_a_version_that_became_complete_is_finished(small: SmallJob, tmp_path: Path) -> None:
    storage, uri = open_storage(None), job_of(small).spec.output.uri
    digests = write_parts(storage, uri, VERSION)
    made = {"job": "small", "jobDigest": job_digest(job_of(small))}
    publish(storage, uri, VERSION, manifest_of(digests) | made, keep=1)
    (small.output / "LATEST").unlink()
    output = attempt_of(small, tmp_path, 0).clean_up()
    assert output is not None
    assert (output.version, output.current) == (VERSION, True)
    assert output.manifest_digest == latest(storage, uri).manifest_digest


def test_a_version_without_the_digest_of_its_job_stays_and_is_read(
    small: SmallJob, tmp_path: Path
) -> None:
    """``resultDigest`` was its name once, which readers took for a digest of the embeddings."""
    storage, uri = open_storage(None), job_of(small).spec.output.uri
    digests = write_parts(storage, uri, VERSION)
    made = {"job": "small", "resultDigest": job_digest(job_of(small))}
    publish(storage, uri, VERSION, manifest_of(digests) | made, keep=1)
    with pytest.raises(WorkerFailed, match="was made from another spec of this job"):
        attempt_of(small, tmp_path, 0).clean_up()
    assert latest(storage, uri).version == VERSION
    assert len(read_version(storage, uri).table) == sum(part.rows for part in digests)


# Plans.


def test_the_planner_leaves_a_plan(small: SmallJob, tmp_path: Path) -> None:
    code, message = plan_pod(tmp_path / "pod", job_of(small))
    plan = PlanResult.model_validate(message)
    assert code == 0
    assert (str(plan.grid), plan.nodes, plan.edges) == ("1x1", NODES, NODES)
    storage, job = open_storage(None), job_of(small)
    program = read_model(storage, job.spec.model.uri)
    found = estimate_program(program, job, list_inputs(storage, job), GridShape())
    assert plan.bytes_exchanged == found.traffic_total_bytes
    assert plan.memory_per_worker_bytes == container_bytes(found.peak_memory_per_worker_bytes)
    assert plan.memory_per_worker_bytes % (64 << 20) == 0


def test_the_planner_confirms_a_version_that_is_up_to_date(small: SmallJob, tmp_path: Path) -> None:
    small.write_manifest(refresh=None)
    version = embertide.run(job_of(small)).version
    code, message = plan_pod(tmp_path / "pod", job_of(small))
    output = OutputReport.model_validate(message)
    assert (code, output.version, output.confirmed, output.current) == (0, version, True, True)
    small.write_features(list(range(NODES)), [[1.0] * WIDTH] * NODES)
    _, message = plan_pod(tmp_path / "again", job_of(small))
    assert PlanResult.model_validate(message).nodes == NODES


def test_the_planner_names_what_is_wrong(small: SmallJob, tmp_path: Path) -> None:
    small.edges.unlink()
    code, message = plan_pod(tmp_path / "pod", job_of(small))
    ending = Ending.model_validate(message)
    assert (code, ending.reason, ending.permanent) == (5, "ObjectMissing", True)
    assert "edges" in ending.message


def grid_for(small: SmallJob, target: int, **changes: object) -> str:
    small.write_manifest(**changes)
    storage, job = open_storage(None), job_of(small)
    program = read_model(storage, job.spec.model.uri)
    return str(fitting_grid(program, job, list_inputs(storage, job), target))


def test_the_grid_is_as_small_as_the_target_allows(small: SmallJob) -> None:
    storage, job = open_storage(None), job_of(small)
    inputs, program = list_inputs(storage, job), read_model(storage, job.spec.model.uri)
    peaks = {
        graph: estimate_program(
            program, job, inputs, GridShape.of(graph, 1)
        ).peak_memory_per_worker_bytes
        for graph in (1, 2, 4, 8)
    }
    assert grid_for(small, peaks[1]) == "1x1"
    assert grid_for(small, 8 << 30) == "1x1"
    least = min(peaks, key=lambda graph: peaks[graph])
    assert grid_for(small, 1) == f"{least}x1"
    smaller = next((graph for graph in (2, 4, 8) if peaks[graph] < peaks[1]), None)
    if smaller is not None:
        assert grid_for(small, peaks[1] - 1) == f"{smaller}x1"
    assert grid_for(small, 1, workers__count=3) == "3x1"
    assert grid_for(small, 1, workers__grid={"graph": 2, "feature": 2}) == "2x2"
