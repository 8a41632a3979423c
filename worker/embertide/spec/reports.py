"""What pods report to the operator: a worker's ``/status``, an ending, a plan.

An ending, a plan and rank 0's output are termination messages, which Kubernetes truncates at 4096
bytes; so long messages are shortened here. A truncated report does not parse and counts as none.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from embertide.spec.grid import GridShape
from embertide.spec.run_status import MAX_ENTRIES, RunStatus, TypeOutput

_LONGEST_BYTES = 4000

WorkerState = Literal["starting", "running", "succeeded", "failed", "stopped"]


class ReportModel(BaseModel):
    """Base: camelCase in JSON; unknown fields are ignored, so that releases may differ."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )

    def to_text(self) -> str:
        """Compact JSON."""
        return self.model_dump_json(by_alias=True, exclude_none=True)

    @classmethod
    def parse(cls, text: str | bytes) -> Self | None:
        """The report that :meth:`to_text` wrote; None for any other text."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None


class Ending(ReportModel):
    """Why a worker or a planner exited, reported through its termination message.

    Attributes:
        reason: the error's class without ``Error`` (``Input``, ``Model``, ``AccessDenied``,
            ``StoreUnavailable``, ``Grid``, ``WorkerFailed``, ...), or ``OutOfMemory``.
        permanent: non-retryable; running the same job again cannot succeed.
        peer: the process only lost a peer; another worker knows the cause.
        log: the last lines of the container's log, in the termination message only.
    """

    reason: str
    message: str
    exit_code: int
    rank: int | None = None
    permanent: bool = False
    peer: bool = False
    log: str = ""

    def to_text(self) -> str:
        """Compact JSON of at most 4000 bytes; the oldest lines, then the message give way."""
        text = super().to_text()
        if len(text.encode()) <= _LONGEST_BYTES:
            return text
        if self.log:
            return self.model_copy(update={"log": self.log.partition("\n")[2]}).to_text()
        short = self.message[: len(self.message) * 3 // 4].removesuffix(" ...") + " ..."
        return self.model_copy(update={"message": short}).to_text()


class ProgressReport(ReportModel):
    """Progress of an attempt.

    Attributes:
        percent: of the whole run; never decreases.
        steps: grows as long as anything is done, also while percent stands still. Compare it with
            its earlier values, by a clock of your own: ``last_update_time`` is of the worker's.
    """

    stage: str
    layer: int = 0
    layers: int = 0
    percent: int = 0
    steps: int = 0
    eta_seconds: int | None = None
    edges_per_second: int | None = None
    last_update_time: str


class OutputReport(ReportModel):
    """The published version: in rank 0's ``/status``, and its container's termination message.

    Attributes:
        uri: of the version; "" in a termination message that would be too long with it. It
            follows from the job's ``output.uri`` and the version.
        current: False where ``LATEST`` names a later run's.
        not_current: why it does, though nothing holds the version; at most 1000 characters.
        job_uid, attempt: whose it is; "" and 0 from workers that did not say so yet.
        types: of a graph of several node types those that were published, None for one of a single
            type, from workers that did not say so yet, and in a termination message that would be
            too long with them.
        not_removed: why versions that the job does not keep are still there; at most 1000
            characters.
        confirmed: True where nothing was computed: it is the current version, computed from the
            same inputs and model.
        held: why the job's gate keeps the version from being current; at most 1000 characters.
    """

    version: str
    uri: str
    rows: int
    dim: int
    manifest_digest: str
    current: bool = True
    job_uid: str = ""
    attempt: int = 0
    types: list[TypeOutput] | None = Field(default=None, max_length=MAX_ENTRIES)
    not_removed: str | None = Field(default=None, max_length=1000)
    confirmed: bool = False
    held: str | None = Field(default=None, max_length=1000)
    not_current: str | None = Field(default=None, max_length=1000)

    def to_text(self) -> str:
        """Compact JSON of at most 4000 bytes; without URI, then types, where it does not fit."""
        text = super().to_text()
        if len(text.encode()) <= _LONGEST_BYTES or not (self.uri or self.types):
            return text
        left_out = {"uri": ""} if self.uri else {"types": None}
        return self.model_copy(update=left_out).to_text()


class WorkerStatus(ReportModel):
    """The response of ``/status``; only rank 0 reports progress, output and report.

    The report is of a run that has published; an attempt that found an earlier one's version
    complete has none. The log is the last lines of rank 0's container while it works: a deadline of
    the job ends it then, which leaves no ending.
    """

    job_uid: str
    attempt: int
    rank: int
    state: WorkerState
    progress: ProgressReport | None = None
    output: OutputReport | None = None
    report: RunStatus | None = None
    failure: Ending | None = None
    log: str = ""


class MissingInput(ReportModel):
    """An input that is not ready: the field of ``spec.input``, why, and how long it may take.

    Attributes:
        optional: it has no objects, and the job goes on without them when its time is over.
    """

    field: str
    why: str
    within_seconds: int
    optional: bool = False


def awaited(missing: list[MissingInput], waited: float) -> list[MissingInput]:
    """Those that a job still waits for, after so many seconds."""
    return [entry for entry in missing if not entry.optional or waited < entry.within_seconds]


class InputsReport(ReportModel):
    """What a look at the inputs found: those that are not ready, the least patient one first.

    Attributes:
        more: how many there are besides, which a termination message has no room for.
    """

    missing: list[MissingInput] = Field(max_length=MAX_ENTRIES)
    more: int = 0

    @classmethod
    def of(cls, missing: list[MissingInput]) -> Self:
        """The report of what a look found, at most 64 entries of it."""
        return cls(missing=missing[:MAX_ENTRIES], more=len(missing[MAX_ENTRIES:]))

    def to_text(self) -> str:
        """Compact JSON of at most 4000 bytes; with fewer inputs where it does not fit."""
        text = super().to_text()
        if len(text.encode()) <= _LONGEST_BYTES:
            return text
        if len(self.missing) > 1:
            fewer = {"missing": self.missing[:-1], "more": self.more + 1}
            return self.model_copy(update=fewer).to_text()
        (only,) = self.missing
        short = only.model_copy(update={"why": only.why[: len(only.why) * 3 // 4]})
        return self.model_copy(update={"missing": [short]}).to_text()


class PlanResult(ReportModel):
    """The planner's result; memory is of a whole worker container, imports included.

    Attributes:
        scratch_bytes: room that each worker needs for tensors on disk; 0: all are in memory.
        tables: field of ``spec.input`` -> the version of the table there, which workers read; left
            out of a termination message that would be too long with it.
    """

    grid: GridShape
    memory_per_worker_bytes: int
    bytes_exchanged: int
    nodes: int
    edges: int
    scratch_bytes: int = 0
    tables: dict[str, int] = Field(default_factory=dict)

    def to_text(self) -> str:
        """Compact JSON of at most 4000 bytes."""
        text = super().to_text()
        if len(text.encode()) <= _LONGEST_BYTES or not self.tables:
            return text
        return self.model_copy(update={"tables": {}}).to_text()


class PushReport(ReportModel):
    """What a pod that pushes has done.

    Attributes:
        version: that readers of the index see now; "" where nothing was pushed.
        current: where nothing was pushed: the version that is current in the place of the one that
            was to be pushed.
        rows: of all tables.
        names: that readers use, the first ones.
        seconds: that it took.
        not_dropped: tables of earlier versions that could not be dropped; at most 1000 characters.
    """

    version: str = ""
    current: str = ""
    rows: int = 0
    names: list[str] = Field(default_factory=list, max_length=MAX_ENTRIES)
    seconds: float = 0.0
    not_dropped: str | None = Field(default=None, max_length=1000)

    def to_text(self) -> str:
        """Compact JSON of at most 4000 bytes; with fewer names where it does not fit."""
        text = super().to_text()
        if len(text.encode()) <= _LONGEST_BYTES or not self.names:
            return text
        return self.model_copy(update={"names": self.names[:-1]}).to_text()
