"""From a job's template and a firing to the job: filled in, named by the minute, checked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from embertide.errors import FILL, ManifestError
from embertide.spec import naming
from embertide.spec.manifest import EmbeddingJob, load_manifest, load_template
from embertide.spec.problems import Loc
from embertide.submit.firing import Firing
from embertide.submit.placeholders import fill, known_in

MIN_TTL_SECONDS = 3600
"""A finished job keeps its minute from being run again, so it has to stay for a while."""
# Free-form parts of pods; braces mean many things there.
_UNTOUCHED: Loc = ("spec", "workers")
_NAME: Loc = ("metadata", "name")
_TTL = "ttlSecondsAfterFinished"


def job_of(path: Path, firing: Firing) -> EmbeddingJob:
    """The job of a firing, as it is created on the cluster.

    Raises:
        ManifestError: every problem of the template.
    """
    try:
        template = load_template(path, lambda data: _prepared(data, firing))
    except ManifestError as error:
        raise _with_hint(error) from None
    meta = template.metadata
    changed = {
        "name": naming.scheduled_name(meta.name, firing.time),
        "labels": meta.labels | {naming.LABEL_SCHEDULE: meta.name},
        "annotations": meta.annotations | {naming.SCHEDULED_TIME: firing.utc},
    }
    return template.model_copy(update={"metadata": meta.model_copy(update=changed)})


def job_at(text_or_path: str | Path, firing: Firing | None) -> EmbeddingJob:
    """A job for this machine, under its own name and with its own paths.

    Args:
        firing: whose time fills in placeholders; None for a job that has none.

    Raises:
        ManifestError: every problem of the template; without a firing, the first placeholder.
    """
    prepare = _unfilled if firing is None else partial(_filled, firing=firing)
    try:
        return load_manifest(text_or_path, prepare)
    except ManifestError as error:
        raise _with_hint(error) from None


def job_to_read(path: Path) -> EmbeddingJob:
    """A job whose types or output are looked at: its inputs' placeholders have the present time.

    Raises:
        ManifestError: every problem of the template; of placeholders beside the inputs, which name
            another output at another time, the first.
    """
    firing = Firing.of_text("now", "UTC")

    def prepare(data: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Loc, str]]]:
        spec = data.get("spec")
        if not isinstance(spec, dict) or "input" not in spec:
            return data, []
        _, problems = _unfilled({"spec": {**spec, "input": None}})
        filled, more = _filled({"spec": {"input": spec["input"]}}, firing)
        return {**data, "spec": {**spec, **filled["spec"]}}, [*problems, *more]

    try:
        return load_manifest(path, prepare)
    except ManifestError as error:
        raise _with_hint(error) from None


def to_object(job: EmbeddingJob, namespace: str | None = None) -> dict[str, Any]:
    """The job for the API: what the template says, and no defaults."""
    found: dict[str, Any] = job.model_dump(
        mode="json", by_alias=True, exclude_unset=True, exclude={"status"}
    )
    if namespace is not None:
        found["metadata"]["namespace"] = namespace
    return found


def refuse_placeholders(job: EmbeddingJob) -> None:
    """Refuse a job that was made with placeholders, whose data would be read from such folders.

    Raises:
        ManifestError: names the first of them.
    """
    _, problems = _unfilled(job.model_dump(mode="json", by_alias=True))
    if problems:
        raise ManifestError([(".".join(map(str, loc)), text) for loc, text in problems], "the job")


def _unfilled(data: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Loc, str]]]:
    """The data as it is, and its first placeholder as a problem."""
    found = next(_placeholders(data.get("spec"), ("spec",)), None)
    return data, [] if found is None else [(found[0], f"{found[1]} {FILL}")]


def _placeholders(value: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """Where texts have placeholders, and these."""
    if loc == _UNTOUCHED:
        return
    if isinstance(value, str) and (known := known_in(value)):
        yield loc, known
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _placeholders(item, (*loc, key))


def _filled(data: dict[str, Any], firing: Firing) -> tuple[dict[str, Any], list[tuple[Loc, str]]]:
    problems: list[tuple[Loc, str]] = []
    filled = _fill(data, (), firing, problems)
    _end_windows(filled, firing)
    return filled, problems


def _prepared(data: dict[str, Any], firing: Firing) -> tuple[dict[str, Any], list[tuple[Loc, str]]]:
    filled, problems = _filled(data, firing)
    more = _of_name(data.get("metadata"))
    if firing.automatic:
        more += _of_ttl(data.get("spec"))
    return filled, [*problems, *more]


def _fill(value: Any, loc: Loc, firing: Firing, problems: list[tuple[Loc, str]]) -> Any:
    """A copy with every text filled in; texts that cannot be stay, and are problems."""
    if loc in (_UNTOUCHED, _NAME):
        return value
    if isinstance(value, dict):
        return {key: _fill(item, (*loc, key), firing, problems) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, (*loc, i), firing, problems) for i, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    try:
        return fill(value, firing.time)
    except ValueError as error:
        problems.append((loc, str(error)))
        return value


def _end_windows(data: dict[str, Any], firing: Firing) -> None:
    """End every window that does not say its last day on the day of the scheduled time."""
    spec = data.get("spec")
    if isinstance(spec, dict) and isinstance(given := spec.get("input"), dict):
        for window in _windows(given):
            window.setdefault("until", f"{firing.time:%Y-%m-%d}")


def _windows(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping ``window`` of the input."""
    if isinstance(value, dict):
        if isinstance(window := value.get("window"), dict):
            yield window
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _windows(item)


def _of_name(meta: Any) -> list[tuple[Loc, str]]:
    """What the name of a schedule may not be."""
    name = meta.get("name") if isinstance(meta, dict) else None
    if not isinstance(name, str):
        return []
    if "{" in name:
        message = f"is {name!r}; must have no placeholder, since the scheduled minute is added"
        return [(_NAME, message)]
    if len(name) <= naming.MAX_SCHEDULE_NAME:
        return []
    message = (
        f"has {len(name)} characters; a schedule's can have {naming.MAX_SCHEDULE_NAME}, since the "
        "scheduled minute is added (products-20261122-0300)"
    )
    return [(_NAME, message)]


def _of_ttl(spec: Any) -> list[tuple[Loc, str]]:
    """While a finished job exists, another pod of its firing does not start it again."""
    ttl = spec.get(_TTL) if isinstance(spec, dict) else None
    if not isinstance(ttl, int) or not 0 <= ttl < MIN_TTL_SECONDS:
        return []
    message = (
        f"is {ttl}; must be at least {MIN_TTL_SECONDS} in a schedule: while the finished job is "
        "there, a firing that comes twice does not start it again"
    )
    return [(("spec", _TTL), message)]


def _with_hint(error: ManifestError) -> ManifestError:
    """YAML reads an unquoted brace inside {...} or [...] as one of its own."""
    hint = "; a placeholder inside {...} or [...] needs quotes around the text"
    path, message = error.problems[0]
    if "not valid YAML" not in message or "expected ',' or" not in message:
        return error
    return ManifestError([(path, message + hint)], error.source)
