"""A job's objects as data: a specification and settings in, what differs from a plain job's out.

A case of ``tests/expected/objects.txt`` is YAML above a line ``--``: fields of ``spec`` (``job``),
of ``spec.workers`` beside cpu and memory (``workers``), of ``podTemplate`` (``template``), of
metadata (``meta``), of the operator's ``settings`` and of the ``attempt``. Below it is what the
job's objects have (``+``) and lack (``-``) beside those of a job without all that, each line with
its objects and path, where items of lists stand under their names; or why the job is refused.
``whole: true`` shows the objects themselves, and ``each`` runs a case with each of its values
merged in. Hashes are left out.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import yaml

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.config.settings import Settings
from embertide_operator.decide.validate import read_job
from embertide_operator.pods.children import children, looker, needs_plan, planner
from tests.support.job_children import ATTEMPT
from tests.support.operator_world import SETTINGS, raw_job

Fields = dict[str, Any]
_RESOURCES = {"limits": {"cpu": 2, "memory": "1Gi"}}
_SHORT = 80
"""Longest value that is one line."""


def objects_text(text: str) -> str:
    """What is below the line of a case."""
    case = yaml.safe_load(text) or {}
    each = case.pop("each", None)
    if each is None:
        return _shown(case)
    return "".join(f"[{name}]\n{_shown(_merged(case, more))}" for name, more in each.items())


def _merged(case: Fields, more: Fields) -> Fields:
    found = copy.deepcopy(case)
    for key, value in more.items():
        found[key] = {**found.get(key, {}), **value} if isinstance(value, dict) else value
    return found


def _shown(case: Fields) -> str:
    built = _objects(case)
    if isinstance(built, str):
        return built
    if case.get("whole"):
        return yaml.safe_dump_all(built.values(), sort_keys=False, width=100)
    plain = _objects({})
    assert not isinstance(plain, str)
    return differences(_lines(plain), _lines(built))


def differences(before: list[tuple[str, str]], after: list[tuple[str, str]]) -> str:
    """Lines of each (object, field) that one has and the other lacks; alike ones as one."""
    found: dict[str, list[str]] = {}
    for sign, some, others in (("-", before, set(after)), ("+", after, set(before))):
        for kind, line in some:
            if (kind, line) not in others:
                found.setdefault(f"{sign} {line}", []).append(kind)
    return "".join(f"{line[0]} {', '.join(kinds)}: {line[2:]}\n" for line, kinds in found.items())


def _objects(case: Fields) -> dict[str, Fields] | str:
    """The objects by kind, pods by their role; or why there are none."""
    settings: Settings = replace(SETTINGS, **case.get("settings", {}))
    workers = {"resources": _RESOURCES} | case.get("workers", {})
    if "template" in case:
        workers["podTemplate"] = case["template"]
    raw = raw_job(**{"workers": workers} | case.get("job", {}))
    raw["metadata"] |= case.get("meta", {})
    job = read_job(raw, settings)
    if not isinstance(job, EmbeddingJob):
        return "".join(f"{path}: {why}\n" for path, why in job)
    given = case.get("attempt", {})
    attempt = replace(ATTEMPT, **given)
    assert isinstance(attempt.grid, GridShape)
    found = {child["kind"]: child for child in children(job, attempt, settings)}
    found |= {"planner": planner(job, attempt, settings), "looker": looker(job, attempt, settings)}
    for child in found.values():
        for name in [key for key in child["metadata"].get("annotations", {}) if "hash" in key]:
            del child["metadata"]["annotations"][name]
    return found | {"planned": {"first": needs_plan(job, settings)}}


def _lines(built: dict[str, Fields]) -> list[tuple[str, str]]:
    """(object, path and value) of all fields; the pods of a StatefulSet are an object beside it."""
    objects = copy.deepcopy(built)
    objects["workers"] = objects["StatefulSet"]["spec"].pop("template")
    return [
        (kind, line)
        for kind, item in objects.items()
        if kind != "ConfigMap"
        for key, value in item.items()
        for line in flat(key, value)
    ]


def flat(path: str, value: Any) -> list[str]:
    """A line for each field below a path; short values further down are one."""
    items: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        items = [(f".{key}", item) for key, item in value.items()]
    elif isinstance(value, list):
        items = [(f"[{_name(item, at)}]", item) for at, item in enumerate(value)]
    if not items or (len(str(value)) < _SHORT and path.count(".") > 1):
        return [f"{path}: {value}"]
    return [line for name, item in items for line in flat(path + name, item)]


def _name(item: Any, at: int) -> str:
    return str(item.get("name", at)) if isinstance(item, dict) else str(at)
