"""What is known of every output: when it was last published, and how old it may become.

Jobs are deleted after their time to live and the operator is restarted, and an alert for a stale
output must survive both. So a record of each output is kept in one ConfigMap beside the operator,
which it may get and patch and no other. The stores' own LATEST would say the same, but the operator
has no credentials of the jobs' stores and should have none.

A record is dropped once no job for its output has existed, nor any been created, for the retention
time, which is at least three times the freshness objective.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import Object
from embertide_operator.api.transport import ApiError
from embertide_operator.config.settings import Settings
from embertide_operator.job.conditions import objective_of, published_at
from embertide_operator.job.observe import is_true, output_of
from embertide_operator.job.status import parse_time

Key = tuple[str, str]
"""Namespace and output URI."""

_OBJECTIVES_KEPT = 3

log = logging.getLogger("embertide")


@dataclass(frozen=True)
class OutputRecord:
    """One output of the jobs of one namespace. Times are RFC 3339 in UTC, "" for never.

    Attributes:
        first_job: when the first known job was created, ``last_job`` when the newest was, which is
            called ``newest``.
        max_age: the newest job's freshness objective in seconds.
        last_success: when a job last published it: ``job``, as ``version``.
        last_failure: when a job last failed without further retries.
    """

    namespace: str
    output: str
    first_job: str
    last_job: str
    newest: str
    max_age: int | None = None
    last_success: str = ""
    job: str = ""
    version: str = ""
    last_failure: str = ""

    @property
    def key(self) -> Key:
        """This output's key among all."""
        return self.namespace, self.output

    @property
    def data_key(self) -> str:
        """The key in the ConfigMap, which cannot be a URI."""
        return hashlib.sha256("\n".join(self.key).encode()).hexdigest()[:32]


Records = Mapping[Key, OutputRecord]


def key_of(job: Object) -> Key:
    """The output of a job."""
    return job["metadata"]["namespace"], output_of(job)


def follow(records: Records, jobs: Iterable[Object]) -> dict[Key, OutputRecord]:
    """The records with what these jobs say; the same again changes nothing."""
    found = dict(records)
    for job in jobs:
        created, name = job["metadata"]["creationTimestamp"], job["metadata"]["name"]
        key = key_of(job)
        found[key] = _with(found.get(key) or OutputRecord(*key, created, created, name), job)
    return found


def _with(record: OutputRecord, job: Object) -> OutputRecord:
    created, name = job["metadata"]["creationTimestamp"], job["metadata"]["name"]
    record = replace(record, first_job=min(record.first_job, created))
    if (created, name) >= (record.last_job, record.newest):
        record = replace(record, last_job=created, newest=name, max_age=objective_of(job))
    if (published := published_at(job)) > record.last_success:
        version = ((job["status"].get("output") or {}).get("version")) or ""
        record = replace(record, last_success=published, job=name, version=version)
    if is_true(job, "Failed"):
        failed = str(job["status"].get("completionTime") or "")
        record = replace(record, last_failure=max(record.last_failure, failed))
    return record


def without_abandoned(
    records: Records, jobs: Iterable[Object], now: datetime, retention_seconds: float
) -> dict[Key, OutputRecord]:
    """The records of outputs that have a job, or had one within the retention time.

    Args:
        jobs: all that exist.
    """
    used = {key_of(job) for job in jobs}
    return {
        key: record
        for key, record in records.items()
        if key in used or _idle_seconds(record, now) <= _kept_seconds(record, retention_seconds)
    }


def _idle_seconds(record: OutputRecord, now: datetime) -> float:
    last = max(record.last_job, record.last_success, record.last_failure)
    return (now - parse_time(last)).total_seconds()


def _kept_seconds(record: OutputRecord, retention_seconds: float) -> float:
    return max(retention_seconds, _OBJECTIVES_KEPT * (record.max_age or 0))


def parse(data: Mapping[str, str]) -> dict[Key, OutputRecord]:
    """The records of a ConfigMap's data; what is no record is left out."""
    found = {}
    for text in data.values():
        try:
            record = OutputRecord(**json.loads(text))
            parse_time(record.first_job), parse_time(record.last_job)
        except (ValueError, TypeError):
            log.warning("a record of an output cannot be read and is ignored: %s", text[:200])
            continue
        found[record.key] = record
    return found


def changes(old: Records, new: Records) -> dict[str, str | None]:
    """The change of the ConfigMap's data; None removes a key."""
    gone = {old[key].data_key: None for key in old.keys() - new.keys()}
    written = {
        record.data_key: json.dumps(asdict(record))
        for key, record in new.items()
        if old.get(key) != record
    }
    return gone | written


class Outputs:
    """The records, and the ConfigMap in which they are kept; thread-safe.

    Without a ConfigMap in the settings they are kept in memory only.
    """

    def __init__(self, api: KubernetesApi, settings: Settings) -> None:
        self._api, self._settings = api, settings
        self._at = settings.own_namespace, settings.outputs_config_map
        self._lock = threading.Lock()
        self._loaded = not all(self._at)
        self._stored: dict[Key, OutputRecord] = {}  # what the ConfigMap has
        self._warned = ""
        self.records: dict[Key, OutputRecord] = {}

    def last_success(self, job: Object) -> str:
        """When the output of a job was last published by any; "" for never."""
        record = self.records.get(key_of(job))
        return record.last_success if record else ""

    def note(self, job: Object) -> None:
        """Keep what one job says. Raises ApiError where it may succeed later."""
        with self._lock:
            self._keep(follow(self._known(), [job]))

    def note_all(self, jobs: list[Object], now: datetime) -> None:
        """Keep what all jobs say, and drop abandoned outputs. Raises ApiError as :meth:`note`."""
        with self._lock:
            found = follow(self._known(), jobs)
            kept = self._settings.output_retention_seconds
            self._keep(without_abandoned(found, jobs, now, kept))

    def _known(self) -> dict[Key, OutputRecord]:
        """The records; read from the ConfigMap the first time."""
        if not self._loaded:
            self._stored = parse(self._read())
            self.records = self._stored | self.records
            self._loaded = True
        return self.records

    def _read(self) -> dict[str, str]:
        """The ConfigMap's data; {} where it cannot be had, which no job must wait for."""
        try:
            found = self._api.get("ConfigMap", *self._at)
        except ApiError as error:
            if error.retryable:
                raise
            self._warn(f"cannot be read: {error}")
            return {}
        if found is None:
            self._warn("is missing; helm upgrade brings it back")
        return (found or {}).get("data") or {}

    def _warn(self, what: str) -> None:
        """Say once that the ConfigMap cannot be used, and why."""
        if what == self._warned:
            return
        self._warned = what
        log.warning("ConfigMap %s/%s %s; when outputs were last published is forgotten at a"
                    " restart", *self._at, what)  # fmt: skip

    def _keep(self, new: dict[Key, OutputRecord]) -> None:
        """Take these as the records, and write what the ConfigMap lacks of them."""
        if all(self._at) and (changed := changes(self._stored, new)):
            self._write(changed, new)
        self.records = new

    def _write(self, changed: dict[str, str | None], new: dict[Key, OutputRecord]) -> None:
        """Write a change; where that is refused, the next call tries again."""
        try:
            self._api.patch_data(*self._at, changed)
        except ApiError as error:
            if error.retryable:
                raise
            self._warn(f"cannot be written: {error}")
            if error.code == 404:  # it may come back, and then empty
                self._stored = {}
        else:
            self._stored, self._warned = new, ""
