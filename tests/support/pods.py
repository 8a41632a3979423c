"""Worker containers as processes on this machine: ``python -m embertide.pod work``.

They are :class:`ForkedProcess`, or where their start or memory is looked at, ``new`` interpreters.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import embertide
from embertide.launch.run_folder import RunFolder
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.reports import Ending, WorkerStatus
from embertide.spec.version_names import new_version
from tests.support.commands import await_nobody, environment, members, name_of
from tests.support.forked_process import ForkedProcess
from tests.support.patience import SOON_SECONDS, WAIT_SECONDS
from tests.support.ports import free_port


class Pod:
    """One pod; its container can be started again and finds its files as they were."""

    process: ForkedProcess | subprocess.Popen[bytes]

    def __init__(self, folder: Path, env: dict[str, str], *, new: bool) -> None:
        self.folder, self._new = folder, new
        self.port = free_port()
        self.termination_log = folder / "termination-log"
        self.log = folder / "log"
        self._env = environment() | env | {
            "EMBERTIDE_SCRATCH": str(folder / "scratch"),
            "EMBERTIDE_TERMINATION_LOG": str(self.termination_log),
            "EMBERTIDE_HTTP_PORT": str(self.port),
            # Short, since sockets lie in it.
            "TMPDIR": f"/tmp/em-{self.port}",
        }  # fmt: skip
        (folder / "scratch").mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Start the container, for the first time or again."""
        self.termination_log.write_text("")
        if not self._new:
            self.process = ForkedProcess(
                "embertide.pod", "work", stdout=self.log, stderr=self.log, env=self._env
            )
            return
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "embertide.pod", "work"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,
            )

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        """An HTTP answer; connection errors are the caller's."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def status(self) -> WorkerStatus | None:
        """What /status says; None while nobody listens."""
        try:
            return WorkerStatus.model_validate_json(self.get("/status")[1])
        except OSError:
            return None

    def until(self, found: Callable[[WorkerStatus], Any], seconds: float = WAIT_SECONDS) -> Any:
        """Wait until ``found`` says something true of the status; returns that."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = self.status()
            if status is not None and (answer := found(status)):
                return answer
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        raise AssertionError(f"not within {seconds} s: {self.status()}\n{self.log.read_text()}")

    def until_stage(self, stage: str) -> None:
        """Wait until rank 0 says that a stage is under way."""
        self.until(lambda status: status.progress is not None and status.progress.stage == stage)

    def until_working(self, stage: str) -> None:
        """Wait until the worker process reports a stage; sooner than the container tells it."""
        deadline = time.monotonic() + WAIT_SECONDS
        while stage not in self.stages():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.005)

    def stages(self) -> list[str]:
        """The stages that the worker process has reported so far, one for every report."""
        reports = self._run_folder() / "progress.jsonl"
        text = reports.read_text() if reports.exists() else ""
        return [json.loads(line)["stage"] for line in text[: text.rfind("\n") + 1].splitlines()]

    def delivered(self, rank: int) -> bool:
        """Whether the worker process has written its part, which is rank 0's from then on."""
        return RunFolder(self._run_folder()).is_delivered(rank)

    def _run_folder(self) -> Path:
        return self.folder / "scratch" / f"attempt-{self._env['EMBERTIDE_ATTEMPT']}"

    def until_state(self, state: str) -> WorkerStatus:
        """Wait for a state."""
        found: WorkerStatus = self.until(lambda status: status.state == state and status)
        return found

    def until_logged(self, text: str) -> None:
        """Wait for a line of the log."""
        self.until(lambda _status: text in self.log.read_text())

    def worker(self, rank: int) -> int:
        """The process id of the worker process, once there is one."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            for process in members(self.process.pid):
                if name_of(process) == f"embertide-{rank}":
                    return process
            time.sleep(0.01)
        raise AssertionError(self.log.read_text())

    def terminate(self) -> None:
        """As Kubernetes ends a container."""
        self.process.send_signal(signal.SIGTERM)

    def ended(self, seconds: float) -> int:
        """The exit code, within ``seconds``; no process may be left."""
        code = self.process.wait(seconds)
        await_nobody(self.process.pid)
        return code

    def ending(self) -> Ending:
        """What the termination message says."""
        found = Ending.parse(self.termination_log.read_text())
        assert found is not None, self.log.read_text()
        return found

    def kill(self) -> None:
        """Whatever state it is in."""
        for process in members(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self._env["TMPDIR"], ignore_errors=True)


def end_well(pods: list[Pod]) -> None:
    """Terminate all at once, as when their job is complete or deleted; each ends without a word."""
    for pod in pods:
        pod.terminate()
    for pod in pods:
        assert pod.ended(SOON_SECONDS) == 0, pod.log.read_text()
        assert "Traceback" not in pod.log.read_text()


class LocalPods:
    """Starts pods of one job, an attempt after the other."""

    def __init__(self, folder: Path, job: EmbeddingJob, *, new: bool = False) -> None:
        self._folder, self._new = folder, new
        self._job_folder = folder / "config"
        self._job_folder.mkdir(parents=True)
        self.edit(job)
        self._output = Path(job.spec.output.uri.removeprefix("file://"))
        self._pods: list[Pod] = []
        self._env: dict[str, str] = {}
        self.versions: list[str] = []

    @property
    def output(self) -> Path:
        """The folder that the job publishes to."""
        return self._output

    def edit(self, job: EmbeddingJob) -> None:
        """Set the job that pods find from now on."""
        (self._job_folder / "job.json").write_text(job.model_dump_json(by_alias=True))

    def attempt(self, grid: str, ranks: list[int] | None = None, **env: str) -> list[Pod]:
        """Start an attempt's pods (default: all), with a version of its own."""
        graph, feature = map(int, grid.split("x"))
        common = {
            "EMBERTIDE_JOB_FOLDER": str(self._job_folder),
            "EMBERTIDE_JOB_UID": "9c2f",
            "EMBERTIDE_OPERATOR_VERSION": embertide.__version__,
            "EMBERTIDE_ATTEMPT": str(len(self.versions) + 1),
            "EMBERTIDE_GRID": grid,
            "EMBERTIDE_EARLIER_VERSIONS": ",".join(self.versions),
            "EMBERTIDE_RENDEZVOUS": f"127.0.0.1:{free_port()}",
            "EMBERTIDE_THREADS": "1",
        }
        self.versions.append(new_version())
        common["EMBERTIDE_VERSION"] = self.versions[-1]
        self._env = common | env
        pods = [
            Pod(
                self._folder / f"{len(self.versions)}-{rank}",
                common | {"EMBERTIDE_RANK": str(rank)} | env,
                new=self._new,
            )
            for rank in (range(graph * feature) if ranks is None else ranks)
        ]
        self._pods += pods
        return pods

    def replace(self, rank: int) -> Pod:
        """Start a new pod in the place of one of the newest attempt."""
        folder = self._folder / f"{len(self.versions)}-{rank}-new"
        env = self._env | {"EMBERTIDE_RANK": str(rank)}
        self._pods.append(Pod(folder, env, new=self._new))
        return self._pods[-1]

    def stop(self) -> None:
        """Kill what is left."""
        for pod in self._pods:
            pod.kill()


@contextmanager
def local_pods(folder: Path, job: EmbeddingJob, *, new: bool = False) -> Iterator[LocalPods]:
    """Pods whose processes end with the block."""
    made = LocalPods(folder, job, new=new)
    try:
        yield made
    finally:
        made.stop()


def files(output: Path) -> list[str]:
    """Everything under an output but folders, hidden files too."""
    return sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())


def plan_pod(folder: Path, job: EmbeddingJob, **env: str) -> tuple[int, dict[str, Any]]:
    """Run the planner; returns its exit code and termination message."""
    return answer_of_pod("plan", folder, job, **env)


def look_pod(folder: Path, job: EmbeddingJob, **env: str) -> tuple[int, dict[str, Any]]:
    """Run a look at the inputs; returns its exit code and termination message."""
    return answer_of_pod("look", folder, job, **env)


def answer_of_pod(
    command: str, folder: Path, job: EmbeddingJob, **env: str
) -> tuple[int, dict[str, Any]]:
    """Run a container that ends by itself; returns its exit code and termination message."""
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "job.json").write_text(job.model_dump_json(by_alias=True))
    message = folder / "termination-log"
    log = folder / "log"
    container = ForkedProcess(
        "embertide.pod",
        command,
        stdout=log,
        stderr=log,
        env=environment() | env | {
            "EMBERTIDE_JOB_FOLDER": str(folder / "config"),
            "EMBERTIDE_SCRATCH": str(folder / "scratch"),
            "EMBERTIDE_TERMINATION_LOG": str(message),
        },
    )  # fmt: skip
    return container.wait(WAIT_SECONDS), json.loads(message.read_text())
