"""However a worker container ends, the right one says why, and nothing half done stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from embertide.cli.options import with_workers
from embertide.edge.synth import SynthOptions, synthesize
from embertide.io.storage.opening import open_storage
from embertide.io.versions.reading import iter_embeddings
from embertide.spec.manifest import load_manifest
from embertide.spec.reports import Ending
from tests.support.commands import environment, members
from tests.support.patience import SOON_SECONDS, WAIT_SECONDS
from tests.support.pods import LocalPods, Pod, end_well, files, local_pods
from tests.support.small_job import SmallJob

pytestmark = pytest.mark.distributed

NODES = 1 << 16
"""Far more than a busy machine takes, and far less than it takes to notice nothing."""


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose stages last long enough to be hit."""
    folder = tmp_path_factory.mktemp("big")
    synthesize(
        open_storage(None),
        f"file://{folder}",
        SynthOptions(nodes=NODES, edges=20 * NODES),
        lambda _what, _done, _total: None,
        None,
    )
    return folder


@pytest.fixture
def made(big: Path, tmp_path: Path) -> Iterator[LocalPods]:
    """The big job's pods; nothing of its version stays under the output."""
    with local_pods(tmp_path / "pods", load_manifest(big / "job.yaml")) as found:
        yield found
    output = found.output
    if (output / "LATEST").exists():
        # The signal came when the version was complete: then it stays, whole.
        check_whole(output)
        shutil.rmtree(output)
    assert not output.exists() or files(output) == []


def check_whole(output: Path) -> None:
    """LATEST's version is complete and readable, and there is nothing else."""
    batches = list(iter_embeddings(open_storage(None), f"file://{output}"))
    assert sum(len(values) for _, values in batches) == NODES
    assert len(files(output)) == 4


def stop(pods: list[Pod]) -> None:
    """As when a job is deleted; they have nothing to report."""
    end_well(pods)
    assert [pod.termination_log.read_text() for pod in pods] == [""] * len(pods)


def lost(
    made: LocalPods, hit: Callable[[list[int]], object], **env: str
) -> tuple[list[Pod], list[Ending]]:
    """Two pods that both end as their workers are hit in a layer, and what they say of it."""
    pods, workers = _standing_still(made, "infer", **env)
    hit(workers)
    os.kill(workers[0], signal.SIGCONT)
    assert [pod.ended(SOON_SECONDS) for pod in pods] == [8, 8]
    return pods, [pod.ending() for pod in pods]


def _importing(made: LocalPods) -> list[Pod]:
    """Two of three, so that they go no further."""
    pods = made.attempt("3x1", [0, 1])
    pods[0].until_stage("plan")
    return pods


def _computing(made: LocalPods) -> list[Pod]:
    return _standing_still(made, "infer")[0]


def _publishing(made: LocalPods) -> list[Pod]:
    """Parts are under way."""
    return _standing_still(made, "publish")[0]


@pytest.mark.parametrize("ready", [_importing, _computing, _publishing])
def test_sigterm_leaves_nothing(made: LocalPods, ready: Callable[[LocalPods], list[Pod]]) -> None:
    stop(ready(made))


def test_waiting_for_the_others_can_be_stopped(made: LocalPods, big: Path) -> None:
    """So it goes with an earlier attempt's incomplete version, too."""
    made.versions.append("20261121T000000Z-000000")
    left = big / "embeddings" / "versions" / made.versions[0]
    left.mkdir(parents=True)
    (left / "part-00000.parquet").write_text("half")
    pods = made.attempt("3x1", [0])
    pods[0].until_logged("waiting for 3 workers")
    assert not left.exists()
    assert pods[0].status().state == "starting"  # type: ignore[union-attr]
    late = made.attempt("3x1", [1])[0]
    late.until_logged("looking for worker 0")
    stop([*pods, late])


def test_patience_for_the_others_is_given(made: LocalPods) -> None:
    """By the operator, which knows how long pods may wait for room."""
    (alone,) = made.attempt("2x1", [1], EMBERTIDE_JOIN_SECONDS="1")
    (host,) = made.attempt("2x1", [0], EMBERTIDE_JOIN_SECONDS="1")
    assert [pod.ended(WAIT_SECONDS) for pod in (alone, host)] == [8, 8]
    assert "could not reach worker 0" in alone.ending().message
    assert "for 1 seconds" in alone.ending().message
    assert "they did not join in time" in host.ending().message
    assert all(pod.ending().peer for pod in (alone, host))


def test_a_killed_worker_is_told_from_its_peers(made: LocalPods) -> None:
    pods, (first, second) = lost(made, lambda workers: os.kill(workers[1], signal.SIGKILL))
    assert second.message.startswith("worker 1 of 2 (graph 1, feature 0) was killed by SIGKILL")
    assert (second.reason, second.rank, second.peer) == ("WorkerFailed", 1, False)
    assert (first.reason, first.rank, first.peer) == ("WorkerFailed", 0, True)
    assert not first.permanent
    assert not second.permanent
    # Kubernetes starts the container again: it joins nothing and says the same.
    pods[1].start()
    held = pods[1].until_state("failed")
    # The last lines of the log are in the termination message alone.
    assert held.failure == second.model_copy(update={"log": ""})
    assert pods[1].get("/healthz")[0] == 200
    stop([pods[1]])


def test_a_worker_killed_while_others_write_is_the_cause(made: LocalPods, big: Path) -> None:
    """Its pod removes the version, and their parts with it; they report whom they lost."""
    pods, workers = _standing_still_in_parts(made)
    os.kill(workers[1], signal.SIGKILL)
    assert pods[1].ended(SOON_SECONDS) == 8
    assert files(big / "embeddings") == []
    os.kill(workers[0], signal.SIGCONT)
    assert pods[0].ended(SOON_SECONDS) == 8
    ending = pods[0].ending()
    assert (ending.reason, ending.peer, ending.permanent) == ("WorkerFailed", True, False)
    assert "lost the connection to another worker during publish" in ending.message


def _standing_still(made: LocalPods, stage: str, **env: str) -> tuple[list[Pod], list[int]]:
    """Two pods and their workers, stopped while both are in this stage.

    On a busy machine they may be done before they are stopped; then another attempt is made.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        pods = made.attempt("2x1", **env)
        workers = [pod.worker(rank) for rank, pod in enumerate(pods)]
        for pod in pods:
            pod.until_working(stage)
        with suppress(ProcessLookupError):
            for worker in workers:
                os.kill(worker, signal.SIGSTOP)
        manifests = made.output.glob("versions/*/*_manifest.json*")
        if all(pod.stages()[-1] == stage for pod in pods) and not list(manifests):
            return pods, workers
        assert time.monotonic() < deadline, pods[0].log.read_text()
        _forget(made, pods)


def _forget(made: LocalPods, pods: list[Pod]) -> None:
    """An attempt that went on too far, and what it wrote."""
    for pod in pods:
        pod.kill()
    shutil.rmtree(made.output, ignore_errors=True)


def _standing_still_in_parts(made: LocalPods) -> tuple[list[Pod], list[int]]:
    """Two pods and their workers, the second stopped before its part of a version is complete.

    A machine may be too busy, or too fast, for that; then another attempt is made.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        pods = made.attempt("2x1")
        pods[0].until_working("infer")
        workers = [pod.worker(rank) for rank, pod in enumerate(pods)]
        # The second stands still from its first byte, so that the first has to wait for it.
        for rank in (1, 0):
            while not _writes(workers[rank]) and not pods[rank].delivered(rank):
                assert time.monotonic() < deadline, pods[0].log.read_text()
                time.sleep(0.001)
            stand_still(workers[rank])
        if not pods[1].delivered(1) and not list(made.output.glob("versions/*/*_manifest.json*")):
            return pods, workers
        assert time.monotonic() < deadline, pods[0].log.read_text()
        _forget(made, pods)


def _writes(worker: int) -> bool:
    """Whether the process has a file of a version open."""
    return any("/versions/" in file.path for file in psutil.Process(worker).open_files())


def stand_still(process: int) -> None:
    """Stop a process, and wait until it has."""
    os.kill(process, signal.SIGSTOP)
    while psutil.Process(process).status() != psutil.STATUS_STOPPED:
        time.sleep(0.001)


def test_a_killed_launcher_is_the_workers_end(made: LocalPods) -> None:
    _, (first, second) = lost(
        made, lambda workers: os.kill(psutil.Process(workers[1]).ppid(), signal.SIGKILL)
    )
    assert second.message == (
        "worker 1 of 2 (graph 1, feature 0) failed: the launch process was killed by SIGKILL"
    )
    assert (first.peer, second.peer) == (True, False)


def test_a_container_without_a_device_says_so(tmp_path: Path, big: Path) -> None:
    job = with_workers(load_manifest(big / "job.yaml"), device="cuda")
    with local_pods(tmp_path / "pods", job) as made:
        (pod,) = made.attempt("1x1", CUDA_VISIBLE_DEVICES="")
        assert pod.ended(WAIT_SECONDS) == 8
        ending = pod.ending()
    assert (ending.reason, ending.permanent) == ("WorkerFailed", False)
    assert ending.message.startswith(
        "spec.workers.device is cuda, but worker 0 finds no CUDA device"
    )


def test_a_container_that_was_killed_holds(made: LocalPods) -> None:
    (pod,) = made.attempt("2x1", [1])
    pod.until_logged("looking for worker 0")
    pod.process.kill()
    pod.process.wait()
    pod.start()
    failure = pod.until_state("failed").failure
    assert failure.reason == "WorkerFailed"
    assert "exited without reporting an error" in failure.message
    stop([pod])


def test_a_worker_that_stands_still_is_given_up(made: LocalPods) -> None:
    # Rank 0 hosts the meeting, so the other launcher notices that it is gone.
    _, endings = lost(made, lambda _: None, EMBERTIDE_PEER_TIMEOUT_SECONDS="6")
    assert [(ending.reason, ending.peer) for ending in endings] == [("WorkerFailed", True)] * 2


def test_bad_input_is_permanent_and_names_the_file(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path / "job")
    job.features.write_bytes(b"PAR1 this is no parquet file")
    with local_pods(tmp_path / "pods", load_manifest(Path(job.manifest))) as found:
        (pod,) = found.attempt("2x1", [0])
        assert pod.ended(SOON_SECONDS) == 3
        ending = pod.ending()
        assert (ending.reason, ending.permanent, ending.rank) == ("Input", True, 0)
        assert str(job.features) in ending.message
        # kubectl logs would show the same, as long as there is a pod.
        logged = pod.log.read_text().splitlines()
        assert ending.log.splitlines() == logged[-40:]
        assert logged[-1].endswith(f"failed: Input: {ending.message}")
        assert files(job.folder / "embeddings") == []


def test_a_rank_finds_bad_input(tmp_path: Path) -> None:
    """Found in the worker process, by one of several."""
    job = SmallJob.make(tmp_path / "job")
    job.write_edges([0, 1, 99], [1, 2, 3])
    with local_pods(tmp_path / "pods", load_manifest(Path(job.manifest))) as found:
        pods = found.attempt("2x1")
        codes = [pod.ended(60) for pod in pods]
        endings = [pod.ending() for pod in pods]
        own = [ending for ending in endings if not ending.peer]
        assert own
        assert all(ending.reason == "Input" and ending.permanent for ending in own)
        assert all(str(job.edges) in ending.message for ending in own)
        assert codes == [ending.exit_code for ending in endings]
        assert not (job.folder / "embeddings").exists() or files(job.folder / "embeddings") == []


def test_settings_are_checked_at_once(tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    done = subprocess.run(
        [sys.executable, "-m", "embertide.pod", "work"],
        env=environment()
        | {
            "EMBERTIDE_TERMINATION_LOG": str(message),
            "EMBERTIDE_GRID": "2x",
            "EMBERTIDE_RANK": "x",
        },
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 2
    ending = Ending.parse(message.read_text())
    assert ending is not None
    assert (ending.reason, ending.permanent) == ("Manifest", True)
    for part in ("GRID: '2x' must be", "EMBERTIDE_RANK: is 'x'", "EMBERTIDE_JOB_UID: is not"):
        assert part in ending.message
        assert part in done.stderr


def test_a_node_that_is_lost_ends_the_attempt(made: LocalPods) -> None:
    """Nobody hears of it again, but no connection is closed; its new pod takes no part."""
    pods, workers = _standing_still(made, "infer", EMBERTIDE_HEARTBEAT_SECONDS="1")
    for process in members(pods[1].process.pid):
        os.kill(process, signal.SIGSTOP)
    replacement = made.replace(1)
    replacement.until_logged("looking for worker 0")
    os.kill(workers[0], signal.SIGCONT)
    assert pods[0].ended(SOON_SECONDS) == 8
    ending = pods[0].ending()
    assert (ending.reason, ending.peer) == ("WorkerFailed", True)
    assert "worker 1 of 2 stopped answering" in ending.message
    # Those would go on to wait for whoever comes.
    pods[1].kill()
    replacement.kill()
