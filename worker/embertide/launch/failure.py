"""Why a run failed: what failing workers report, and which of them failed first.

One dead worker takes the others down with broken connections, within milliseconds and in any
order, so the first to report is seldom the first to fail. Every worker that still can writes a
report into the run's folder: its own error, or that it lost a peer. The launcher knows how
processes ended. Together they tell the cause.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass

from embertide.errors import EmbertideError, StorageError, WorkerFailed
from embertide.launch.run_folder import RunFolder, WorkerError
from embertide.spec.grid import GridShape

_MEMORY_WORDS = ("can't allocate memory", "out of memory", "MemoryError")
_TAIL_LINES = 5
UNREADABLE = (
    "scratch folder {folder}: {worker} was killed by SIGBUS {when}, as it read a file there that"
    " the disk did not give back; see whether the disk is sound, or name another folder with"
    " --scratch (spec.workers.scratch)"
)
"""Results and features are read where their files are mapped, where a failing disk is no error of a
call: the system kills the process."""
_CRASH, _CRASH_LINES = "Fatal Python error", 4


@dataclass(frozen=True)
class Exit:
    """How a worker process ended; a negative ``exit_code`` is the signal that killed it.

    ``local`` is its number among its launcher's workers.
    """

    rank: int
    exit_code: int
    local: int


@dataclass(frozen=True)
class Cause:
    """Why a run failed.

    Attributes:
        rank: whose failure it is.
        peer: only that another worker was lost, which some other launcher knows more about.
        internal: an exception that is no message for users; the log has its traceback.
        silent: the worker died without reporting an error, killed by a signal.
        memory: an allocation failed, of the machine's memory or the GPU's.
    """

    error: EmbertideError
    rank: int
    peer: bool = False
    internal: bool = False
    silent: bool = False
    memory: bool = False


def first_cause(folder: RunFolder, grid: GridShape, exits: Iterable[Exit]) -> Cause | None:
    """The error that started it: a worker's own report, else the worker that died without one.

    None when no worker reported anything and none died.

    Args:
        exits: of the workers that the launcher saw fail.
    """
    stage = folder.last_stage()
    when = f"during {stage}" if stage else "while it started"
    reports = folder.read_errors()
    own = [report for report in reports if not report.peer]
    for report in own:
        if report.error is not None:
            return Cause(EmbertideError.from_json(report.error), report.rank)
    if own:
        text = f"{grid.describe(own[0].rank)} failed {when}: {_unexpected(own[0])}"
        memory = _is_memory(own[0].message.splitlines()[0])
        return Cause(WorkerFailed(text), own[0].rank, internal=True, memory=memory)
    reported = {report.rank for report in reports}
    for ended in exits:
        if ended.rank not in reported:
            if ended.exit_code == -signal.SIGBUS and (scratch := folder.scratch_of(ended.rank)):
                lost = UNREADABLE.format(
                    worker=grid.describe(ended.rank), when=when, folder=scratch
                )
                return Cause(StorageError(lost), ended.rank)
            text = f"{grid.describe(ended.rank)} {_died(folder, ended, when)}"
            return Cause(WorkerFailed(text), ended.rank, silent=True)
    if not reports:
        return None
    rank, why = reports[0].rank, reports[0].message
    text = f"{grid.describe(rank)} lost the connection to another worker {when}: {why}"
    return Cause(WorkerFailed(text), rank, peer=True)


def _unexpected(report: WorkerError) -> str:
    message = report.message.splitlines()[0]
    if _is_memory(message):
        return f"{message}. Use more workers, or machines with more memory"
    return f"{message}. EMBERTIDE_DEBUG=1 shows where"


def _is_memory(message: str) -> bool:
    return any(word in message for word in _MEMORY_WORDS)


def _died(folder: RunFolder, ended: Exit, when: str) -> str:
    if ended.exit_code >= 0:
        text = f"exited with code {ended.exit_code} {when} without reporting an error"
    else:
        text = f"was killed by {signal.Signals(-ended.exit_code).name} {when}"
    if ended.exit_code == -signal.SIGKILL:
        return f"{text}; if that was the system running out of memory, use more workers"
    output = _last_output(folder, ended.local)
    return f"{text}; its last output:\n{output}" if output else text


def _last_output(folder: RunFolder, local: int) -> str:
    """The end of what the process wrote, such as a native library's last message.

    After a crash, Python writes where it was: the innermost call first, then all that led there.
    """
    lines = [line for line in folder.log_lines(local) if line.strip()]
    crashes = [at for at, line in enumerate(lines) if line.startswith(_CRASH)]
    end = crashes[0] + _CRASH_LINES if crashes else len(lines)
    return "\n".join(f"  {line}" for line in lines[max(0, end - _TAIL_LINES) : end])
