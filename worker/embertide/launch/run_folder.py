"""The folder through which a launcher and its workers talk; nothing else passes between them.

On a laptop all workers share one folder; in pods each rank has its own, so only rank 0's holds
the order, which rank 0 broadcasts.

    job.json           the manifest
    order.json         the work order: inputs, version, planned memory
    progress.jsonl     progress events, from rank 0, or from the one worker of a pod
    report.json        what was published, from rank 0, once every worker is done
    snapshot-<rank>.json  a worker's metrics so far, where they are served
    error-<rank>.json  why a worker failed (``failure.py``)
    scratch-<rank>     the folder of a worker's files that are mapped, if it has any
    logs/              what libraries printed in the workers
    delivered-<rank>   the worker's part is written and may become visible from now on
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embertide.errors import EmbertideError, OutputError
from embertide.facts.telemetry.progress import OnProgress, Progress
from embertide.facts.telemetry.report import RunReport
from embertide.facts.telemetry.snapshot import Snapshot
from embertide.launch.leftovers import temporary_folder
from embertide.spec.manifest import EmbeddingJob

if TYPE_CHECKING:
    from embertide.engine.planning.order import WorkOrder

_POLL_SECONDS = 0.1
_PROGRESS_BYTES = 1 << 20
"""The most bytes of events that are kept; a run may take days, and they are read once."""


@dataclass(frozen=True)
class WorkerError:
    """What a failing worker wrote down.

    Attributes:
        time: seconds since the epoch.
        peer: only that another worker is gone.
        error: the error where it is one for users, else None.
        message: the exception in one text.
    """

    rank: int
    time: float
    peer: bool
    error: dict[str, Any] | None
    message: str


@dataclass(frozen=True)
class RunFolder:
    """Every file of a run's folder: its name, its writer and its reader."""

    path: Path

    @classmethod
    @contextmanager
    def temporary(cls) -> Iterator[RunFolder]:
        """A new folder, which is removed at the end, or by the next run if this one is killed.

        Raises:
            OutputError: no temporary folder can be made.
        """
        with temporary_folder() as path:
            yield cls(path)

    # -- what to do ----------------------------------------------------------------------

    def write_job(self, job: EmbeddingJob) -> None:
        """For every worker. Raises OutputError."""
        write_text(self.path / "job.json", job.model_dump_json(by_alias=True))

    def read_job(self) -> EmbeddingJob:
        """What :meth:`write_job` wrote."""
        return EmbeddingJob.model_validate_json((self.path / "job.json").read_text())

    def write_order(self, order: WorkOrder) -> None:
        """For rank 0. Raises OutputError."""
        write_text(self.path / "order.json", json.dumps(order.to_json()))

    def read_order(self) -> dict[str, Any]:
        """What :meth:`write_order` wrote, as JSON-able data."""
        order: dict[str, Any] = json.loads((self.path / "order.json").read_text())
        return order

    # -- how it goes ---------------------------------------------------------------------

    def append_progress(self, event: Progress) -> None:
        """Add one progress event, a line of JSON; the file begins again when it is long."""
        with self._progress.open("a") as file:
            if file.tell() > _PROGRESS_BYTES:
                file.truncate(0)
            file.write(json.dumps(asdict(event)) + "\n")

    @contextmanager
    def following(self, on_progress: OnProgress) -> Iterator[None]:
        """Pass on what is appended to the progress from now on, from a thread."""
        at = self._progress.stat().st_size if self._progress.exists() else 0

        def follow() -> None:
            nonlocal at
            at = self._pass_on(at, on_progress)

        with repeating(follow, _POLL_SECONDS):
            yield

    def last_stage(self) -> str:
        """The stage of the last event, "" before there is one."""
        text = self._progress.read_text() if self._progress.exists() else ""
        # A process that was killed may have left half a line.
        lines = text[: text.rfind("\n") + 1].splitlines()
        return str(json.loads(lines[-1])["stage"]) if lines else ""

    @property
    def _progress(self) -> Path:
        return self.path / "progress.jsonl"

    def _pass_on(self, at: int, on_progress: OnProgress) -> int:
        """Report complete lines from byte ``at``; returns where to go on."""
        if not self._progress.exists():
            return at
        with self._progress.open("rb") as file:
            if file.seek(0, 2) < at:
                at = 0  # it began again
            file.seek(at)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        for line in complete.splitlines():
            on_progress(Progress(**json.loads(line)))
        return at + len(complete)

    @contextmanager
    def writing_snapshots(
        self, rank: int, take: Callable[[], Snapshot], period_seconds: float
    ) -> Iterator[Callable[[], None]]:
        """Write a snapshot at once, then every so often from a thread, and at the end.

        Yields what writes one in between; any thread may call.
        """
        writing = threading.Lock()

        def write() -> None:
            # A run is worth more than its metrics.
            with writing, suppress(OutputError):
                write_text(self._snapshot(rank), json.dumps(take().to_json()))

        write()
        with repeating(write, period_seconds):
            yield write

    def read_snapshot(self, rank: int) -> Snapshot | None:
        """A worker's newest snapshot, None before its first."""
        path = self._snapshot(rank)
        return Snapshot.from_json(json.loads(path.read_text())) if path.exists() else None

    def _snapshot(self, rank: int) -> Path:
        return self.path / f"snapshot-{rank}.json"

    def note_upload(self, uri: str) -> None:
        """A multipart upload of an object begins; any worker and thread may call."""
        with (self.path / "uploads").open("a") as file:
            file.write(f"{uri}\n")

    def uploads(self) -> list[str]:
        """URIs that were noted."""
        path = self.path / "uploads"
        return path.read_text().splitlines() if path.exists() else []

    # -- how it ended --------------------------------------------------------------------

    def mark_delivered(self, rank: int) -> None:
        """A worker's part may become visible from now on."""
        self._delivered(rank).touch()

    def is_delivered(self, rank: int) -> bool:
        """Whether :meth:`mark_delivered` was called for the worker."""
        return self._delivered(rank).exists()

    def _delivered(self, rank: int) -> Path:
        return self.path / f"delivered-{rank}"

    def write_report(self, report: RunReport) -> None:
        """What was published. Raises OutputError."""
        write_text(self._report, json.dumps(report.to_json()))

    def read_report(self) -> RunReport | None:
        """What was published, None before that."""
        if not self._report.exists():
            return None
        return RunReport.from_json(json.loads(self._report.read_text()))

    @property
    def _report(self) -> Path:
        return self.path / "report.json"

    def write_error(self, rank: int, error: Exception, *, peer: bool) -> None:
        """Why a worker fails; ``peer`` says that it is only that another worker is gone."""
        for_users = error.to_json() if isinstance(error, EmbertideError) else None
        message = f"{type(error).__name__}: {error}"
        found = WorkerError(rank, time.time(), peer, for_users, message)
        write_text(self.path / f"error-{rank}.json", json.dumps(asdict(found)))

    def read_errors(self) -> list[WorkerError]:
        """What failing workers wrote, the earliest first."""
        texts = [path.read_text() for path in self.path.glob("error-*.json")]
        return sorted((WorkerError(**json.loads(text)) for text in texts), key=lambda e: e.time)

    def note_scratch(self, rank: int, scratch: Path) -> None:
        """A worker maps files of a scratch folder from now on. Raises OutputError."""
        write_text(self.path / f"scratch-{rank}", str(scratch))

    def scratch_of(self, rank: int) -> str:
        """What :meth:`note_scratch` wrote; "" of a worker that maps no such files."""
        path = self.path / f"scratch-{rank}"
        return path.read_text() if path.exists() else ""

    def log_path(self, local: int) -> Path:
        """Where a launcher's worker of that number writes what libraries print."""
        return self.path / "logs" / f"{local}.log"

    def log_lines(self, local: int) -> list[str]:
        """What was written there."""
        path = self.log_path(local)
        return path.read_text(errors="replace").splitlines() if path.exists() else []


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        OutputError: no space, or not allowed.
    """
    draft = path.with_name(f".{path.name}.tmp")
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}; free space there, or set TMPDIR to"
            " another folder"
        ) from error


@contextmanager
def repeating(act: Callable[[], None], period_seconds: float) -> Iterator[None]:
    """Call ``act`` from a thread every so often, and once more at the end."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(period_seconds):
            act()
        act()

    thread = threading.Thread(target=repeat, name=act.__name__, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
