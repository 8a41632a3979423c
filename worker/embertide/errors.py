"""Every error a user can meet, with the exit code it ends the command with.

    EmbertideError
    |-- ManifestError     2  the EmbeddingJob itself: every problem at once, each with its path
    |-- InputError        3  edges, features or ids: names the object, the row and the field
    |   |-- InputChanged        changed between its listing and the end of reading it
    |   |-- InputsNotReady      what spec.input waits for did not come in time
    |   `-- InputTooSmall       fewer edges or nodes than minEdges, minNodes or maxShrink allow
    |-- ModelError        4  model.yaml or weights: what was found beside what was expected
    |-- StorageError      5  a store refused or failed
    |   |-- ObjectMissing       no such object, bucket or prefix
    |   |-- AccessDenied        credentials missing, wrong or not allowed
    |   `-- StoreUnavailable    did not answer after the retries (a later attempt may succeed)
    |-- OutputError       6  the output cannot be written or verified
    |-- GridError         7  a grid that does not fit the graph, the model or the machine
    |-- WorkerFailed      8  a worker died or was killed; names its rank
    |   `-- ProcessDied         so did a process that serves all of them, such as the launcher
    |-- ClusterError      9  the Kubernetes API refused or did not answer
    |-- JobFailed        10  a job that was waited for failed, was refused or was deleted
    |-- VersionHeld      11  the version is complete, and the job's gate keeps it from readers
    |-- SelfCheckFailed  12  rows of a layer are not what computing them again gives
    |-- VersionPassed   13  the version is complete, and another one stays current
    `-- Interrupted     130  Ctrl-C or SIGTERM

An error is *permanent* when running the same job again cannot succeed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self


class EmbertideError(Exception):
    """Base of all errors that end in a message for the user, never in a traceback.

    Attributes:
        details: what the command's ``--json`` has beside the message, if more;
            it stays in this process.
    """

    exit_code: ClassVar[int] = 1
    permanent: ClassVar[bool] = True
    details: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, so that an error can leave the process it happened in."""
        return {"kind": type(self).__name__, "message": str(self)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> EmbertideError:
        """The error that :meth:`to_json` described, of the same class."""
        kind: type[EmbertideError] = globals()[data["kind"]]
        return kind._rebuild(data)

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> Self:
        return cls(data["message"])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by what it says, since not every class is made from its message."""
        return EmbertideError.from_json, (self.to_json(),)


class ManifestError(EmbertideError):
    """The manifest is wrong; ``problems`` lists each as (path, message)."""

    exit_code = 2

    def __init__(self, problems: list[tuple[str, str]], source: str = "manifest") -> None:
        self.problems, self.source = problems, source
        lines = [f"  {path}: {message}" if path else f"  {message}" for path, message in problems]
        count = f"{len(problems)} problem" + ("s" if len(problems) != 1 else "")
        super().__init__(f"{source} has {count}:\n" + "\n".join(lines))

    def to_json(self) -> dict[str, Any]:
        """With the problems one by one."""
        return {**super().to_json(), "problems": self.problems, "source": self.source}

    @classmethod
    def _rebuild(cls, data: dict[str, Any]) -> Self:
        return cls([(path, message) for path, message in data["problems"]], data["source"])


class InputError(EmbertideError):
    """An edge list, a feature table or an id is wrong."""

    exit_code = 3


class InputChanged(InputError):
    """Something writes an input while it is read; a later attempt lists it again."""

    permanent = False


class InputsNotReady(InputError):
    """What an input waits for (``ready``) did not come within its time."""


class InputTooSmall(InputError):
    """There are fewer edges or nodes than the job allows."""


class ModelError(EmbertideError):
    """The model description or its weights are wrong."""

    exit_code = 4


_PLACEHOLDER = re.compile(r"\{(date|datetime)\b[^{}]*\}")
FILL = (
    "is a placeholder: embertide run, plan, check and embed fill it with --at (--at now), embertide"
    " submit on a cluster"
)


class StorageError(EmbertideError):
    """A store refused or failed."""

    exit_code = 5


class ObjectMissing(StorageError):
    """No such object, bucket or prefix.

    Attributes:
        no_bucket: whether it is the bucket that does not exist, which no later object will change.
    """

    no_bucket = False

    def __init__(self, message: str) -> None:
        found = _PLACEHOLDER.search(message)
        if found and FILL not in message:
            message += f"; {found.group()} {FILL}"
        super().__init__(message)


class AccessDenied(StorageError):
    """The store does not allow this with these credentials."""


class StoreUnavailable(StorageError):
    """The store did not answer, or answered with errors, after all retries."""

    permanent = False


class OutputError(EmbertideError):
    """The output cannot be written, or what was written does not verify."""

    exit_code = 6


class GridError(EmbertideError):
    """The grid does not fit the graph, the model or the machine."""

    exit_code = 7


class WorkerFailed(EmbertideError):
    """A worker process died."""

    exit_code = 8
    permanent = False


class ProcessDied(WorkerFailed):
    """A process of the run ended without an answer; killed, most likely."""


class ClusterError(EmbertideError):
    """The Kubernetes API refused or did not answer."""

    exit_code = 9
    permanent = False


class JobFailed(EmbertideError):
    """A job that was waited for failed, was refused or was deleted."""

    exit_code = 10


class VersionHeld(EmbertideError):
    """The job's gate holds the version, which is complete; readers keep the one before."""

    exit_code = 11


class SelfCheckFailed(EmbertideError):
    """Rows of a layer are not what computing them again gives; nothing was published."""

    exit_code = 12


class VersionPassed(EmbertideError):
    """The version is complete; a later run's, or one that was chosen meanwhile, stays current."""

    exit_code = 13


class Interrupted(EmbertideError):
    """The user or the system asked the run to stop."""

    exit_code = 130
    permanent = False
