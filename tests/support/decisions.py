"""Lives of a job as data: what is seen, step by step, and what the operator decides each time.

A case of ``tests/expected/decisions`` is YAML above a line ``--``; below it is what each step that
is not of its beginning changed in the status, what it told and what it did::

    begin: running                      # steps of BEGINNINGS, which show nothing
    job: {backoffLimit: 0}              # fields of spec that differ from raw_job()'s
    late: {object: _SUCCESS}            # edges wait for their inputs so
    push: {backoffLimit: 2}             # with an index to push into, and these fields of it
    settings: {disruption_budget: false}
    pods: [EMBERTIDE_TABLES, scratch]   # variables, volumes and fields to show of applied pods
    show: [phase, Failed]               # of the status, only fields that begin like these
    each: {a: {why: no room}, b: ...}   # the case once for each, with its values for $why, all for
                                        # $it, and fields to take in for the key +
    steps:
    - {after: 3, pods: [running, {end: CRASH}], report: {percent: 40}, competing_job: shop/first}

A step changes what is seen, which stays until another one does, and reconciles. Its keys are fields
of :class:`Observed` and

    after      seconds since the step before; ``due``: what the decision asked for, ``look``: until
               the next look at the inputs
    spec, meta, children, seen_pods
               merged into the job, into children by their kind (null: it is gone), into the pods
               that are seen by their index
    pods       states of the workers' pods of this attempt, see :func:`_pod`
    report     what rank 0 answers: arguments of ``World.report``, ``output``, fields of its
               version, ``log``, and ``ahead``, seconds of its clock
    settings   other settings from now on
    refuse     the API server refuses an object of the decision before, with this message
    clock      seconds that the operator's clock is put forward before
    times      so many such steps, shown as one, with {i} for their number and {0|1} for turns
    until      steps like it until the status has these fields, shown as one
    steps      these steps, ``times`` or ``until``, in its place
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import yaml

from embertide.spec import reports
from embertide.spec.grid import GridShape
from embertide.spec.status import JobStatus
from embertide_operator.decide.decision import Decision
from embertide_operator.decide.obstacles import note_refusal
from embertide_operator.decide.push_ends import note_refused
from embertide_operator.decide.quota_advice import with_advice
from embertide_operator.job.status import Draft, PendingEvent, parse_time
from tests.support.operator_world import World, raw_job

Fields = dict[str, Any]

READY: list[Fields] = [{}, {"after": 3, "pods": ["running", "running"]}]
PUBLISHED: list[Fields] = [
    *READY, {"after": 1, "report": {"state": "succeeded", "percent": 100}},
    {"after": 1, "pods": [], "report": None},
]  # fmt: skip
BEGINNINGS: dict[str, list[Fields]] = {
    "nothing": [],
    "created": [{}],
    "ready": READY,
    "running": [*READY, {"after": 1, "report": {}}],
    "published": PUBLISHED,
    "completed": [*READY, {"after": 1, "report": {"state": "succeeded"}}],
    "pushing": [*PUBLISHED, {"after": 1}],
}
ENDINGS = {
    "LOST": {"reason": "WorkerFailed", "message": "lost worker 1", "exit_code": 8, "rank": 0,
             "peer": True},
    "BAD_ROW": {"reason": "Input", "message": "row 7", "exit_code": 3, "rank": 1,
                "permanent": True},
    "CRASH": {"reason": "WorkerFailed", "message": "worker 1 died", "exit_code": 8, "rank": 1},
}  # fmt: skip
_MOST = 200
_ROLES = {"planner": "products-plan", "inputs": "products-inputs", "push": "products-push"}


def life(text: str) -> str:
    """What is below the line of a case, of each of its ``each``."""
    case = yaml.safe_load(text)
    each = case.pop("each", None)
    if each is None:
        return "".join(_shown(case))
    named = each if isinstance(each, dict) else {str(value): value for value in each}
    alike: dict[str, list[str]] = {}
    for name, value in named.items():
        values = {"it": value} | (value if isinstance(value, dict) else {})
        alike.setdefault("".join(_shown(_filled(case, values))), []).append(name)
    return "".join(f"[{'; '.join(names)}]\n{text}" for text, names in alike.items())


def lived(beginning: str, *steps: Fields, **spec: Any) -> World:
    """A job after the steps of a beginning and these."""
    world, last = World(**spec), None
    for step in [*BEGINNINGS[beginning], *steps]:
        last = _run(world, step, last)[-1]
    return world


def _filled(value: Any, values: Fields) -> Any:
    """With the values for ``$name``; a key ``+`` takes in all of a mapping."""
    if isinstance(value, dict):
        found = {key: _filled(item, values) for key, item in value.items()}
        more = found.pop("+", None) or {}
        return {**found, **more}
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    if isinstance(value, str) and re.fullmatch(r"\$\w+", value):
        return copy.deepcopy(values.get(value[1:]))
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", lambda found: str(values[found[1]]), value)
    return value


def _shown(case: Fields) -> list[str]:
    """The lines of a case; each step ends in one that is compared with what the schema keeps."""
    spec = dict(case.get("job", {}))
    if "late" in case:
        spec["input"] = copy.deepcopy(raw_job()["spec"]["input"])
        spec["input"]["edges"][0]["ready"] = case["late"]
    if "push" in case:
        spec["push"] = {"uri": "postgresql://shop@db/shop", "credentialsSecret": "index"}
        spec["push"] |= case["push"]
    world = World(**spec)
    world.settings = replace(world.settings, **case.get("settings", {}))
    names, parts, fields = _Names(), case.get("pods", []), tuple(case.get("show", [""]))
    for step in BEGINNINGS[case.get("begin", "created")]:
        _take(world, step, None)
        names.replaced(json.dumps(world.status))
    shown: list[str] = []
    last: Decision | None = None
    for step in case["steps"]:
        before, since = copy.deepcopy(world.job.get("status") or {}), world.now
        taken = _run(world, step, last)
        last = taken[-1]
        steps = f" in {len(taken)} steps" if len(taken) > 1 else ""
        lines = [
            f"+{(world.now - since).total_seconds():g} s{steps}: {_done(taken)}",
            *_parts(taken, parts),
            *_differences(before, world.status, fields),
            *_events([event for decision in taken for event in decision.draft.events]),
        ]
        shown += [names.replaced("\n  ".join(lines)) + "\n"]
    return shown


class _Names:
    """Versions have names by chance: here V1, V2, in the order in which they appear."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def replaced(self, text: str) -> str:
        return re.sub(
            r"\b\d{8}T\d{6}Z-[0-9a-f]{6}\b",
            lambda found: self._known.setdefault(found[0], f"V{len(self._known) + 1}"),
            text,
        )


def _run(world: World, step: Fields, last: Decision | None) -> list[Decision]:
    """The decisions of a step, and of those it stands for."""
    taken: list[Decision] = []
    until = step.get("until", {})
    for at in range(_MOST if until else step.get("times", 1)):
        one = _numbered(step, at) if "times" in step else step
        for inner in one.get("steps", [one]):
            if inner is one:
                taken.append(_take(world, one, taken[-1] if taken else last))
            else:
                taken += _run(world, inner, taken[-1] if taken else last)
        if until and until.items() <= world.status.items():
            return taken
    assert not until, f"never {until}: {world.status}"
    return taken


def _numbered(step: Fields, at: int) -> Fields:
    """A step of several with its number for {i}, and one of the turns {a|b}."""

    def turn(found: re.Match[str]) -> str:
        turns = found[1].split("|")
        return turns[at % len(turns)]

    text = json.dumps(step).replace('"{i}"', str(at)).replace("{i}", str(at))
    found: Fields = json.loads(re.sub(r"\{([^{}:\"]*\|[^{}:\"]*)\}", turn, text))
    return found


def _take(world: World, step: Fields, last: Decision | None) -> Decision:
    """Change what is seen, and reconcile."""
    seen = {key: value for key, value in step.items() if key not in _OWN}
    _merge(world.job["spec"], step.get("spec", {}))
    _merge(world.job["metadata"], step.get("meta", {}))
    if "settings" in step:
        world.settings = replace(world.settings, **step["settings"])
    if "children" in step:
        seen["children"] = copy.deepcopy(world.seen.children)
        _merge(seen["children"], step["children"])
    if "refuse" in step:
        _refuse(world, step["refuse"])
    world.now += timedelta(seconds=step.get("clock", 0))
    if "pods" in step:
        states = step["pods"]
        if isinstance(states, dict):
            states = [state for state, count in states.items() for _ in range(count)]
        seen["pods"] = [_pod(world, rank, state) for rank, state in enumerate(states)]
    for index, fields in step.get("seen_pods", {}).items():
        _merge(world.seen.pods[int(index)], fields)
    if "report" in step:
        seen["report"] = None if step["report"] is None else _report(world, **step["report"])
    after = step.get("after", 0)
    if after == "due":
        after = last.requeue_after if last else None
        assert after is not None
    elif after == "look":
        after = max(
            0.0, (parse_time(world.status["inputs"]["nextLookTime"]) - world.now).total_seconds()
        )
    decision = world.reconcile(after, **seen)
    kept = JobStatus.model_validate(world.status).to_object()
    assert kept == {"versions": []} | world.status, "the definition lacks a field of the status"
    return decision


_OWN = {
    *("after", "spec", "meta", "settings", "children", "refuse", "pods", "seen_pods", "report"),
    *("clock", "times", "until", "steps"),
}


def _refuse(world: World, message: str) -> None:
    draft = Draft(world.job, world.now)
    complete = draft.is_true("Complete")
    (note_refused if complete else note_refusal)(draft, with_advice(message, "products"))
    world.job["status"] = draft.fields


def _merge(into: Fields, fields: Fields) -> None:
    """Mappings are merged, None removes, ``+`` before a key adds to its list, others replace."""
    for key, value in fields.items():
        if key.startswith("+"):
            into.setdefault(key[1:], []).extend(copy.deepcopy(value))
        elif value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif isinstance(value, dict) and isinstance(into.get(key), list):
            for at, fields_of in value.items():
                _merge(into[key][int(at)], fields_of)
        else:
            into[key] = copy.deepcopy(value)


def _pod(world: World, rank: int, state: Any) -> Fields:
    """A pod of this attempt: ``running``, ``none``, ``published``, or a mapping.

    Its container ``is`` one of these; has ``end``ed, as one of ENDINGS or with the fields of one,
    and was started again, ``exit`` are other fields of its end; is ``waiting``, [reason, message];
    has ``published`` with other fields of its version, ``again`` if it was started again; is
    ``done``, with a report's kind and fields or a text as its message; or has ``container`` as its
    status. ``role`` makes it another pod than a worker's, ``deleted`` lets it be deleted,
    ``unscheduled`` is why it has no node, [reason, message]. Other fields are merged into it.
    """
    more = dict(state) if isinstance(state, dict) else {"is": state}
    pod: Fields = world.pod(rank, _container(world, more))
    meta = pod["metadata"]
    if role := more.pop("role", ""):
        meta["labels"]["embertide.dev/role"] = role
        meta |= {"name": _ROLES[role], "uid": f"{role}-1"}
        created = (world.seen.children.get("Pod") or {}).get("metadata", {})
        if created.get("name") == _ROLES[role]:
            meta["labels"] = dict(created["labels"])
    if more.pop("deleted", False):
        meta["deletionTimestamp"] = "2026-11-21T12:00:30Z"
    if "unscheduled" in more:
        reason, message = more.pop("unscheduled")
        why = {"status": "False", "reason": reason, "message": message}
        pod["status"]["conditions"] = [{"type": "PodScheduled", **why}]
    _merge(pod, more)
    return pod


def _container(world: World, more: Fields) -> Fields:
    """The status of a pod's container; takes its fields out of ``more``."""
    exit_fields = more.pop("exit", None)
    if "waiting" in more:
        return world.waiting(*more.pop("waiting"))
    if "published" in more:
        given = dict(more.pop("published"))
        return world.published(again=given.pop("again", False), output=given)
    if "done" in more:
        says = more.pop("done")
        for kind, fields in says.items() if isinstance(says, dict) else ():
            says = _REPORTS[kind](world, fields).to_text()
        end = {"exitCode": 0, "message": says} | (exit_fields or {})
        return {"state": {"terminated": end}}
    if "end" in more or exit_fields is not None:
        ending = more.pop("end", None)
        given = ENDINGS[ending] if isinstance(ending, str) else ending
        return world.ended(reports.Ending(**given) if given else None, **(exit_fields or {}))
    if "container" in more:
        return dict(more.pop("container"))
    match more.pop("is", "none"):
        case "running":
            return world.running()
        case "published":
            return world.published(again=False)
        case _:
            return {}


_SIZES = {"memory_per_worker_bytes": 1 << 30, "bytes_exchanged": 1, "nodes": 9, "edges": 9}
_REPORTS: dict[str, Any] = {
    "ending": lambda _, given: reports.Ending(
        **(ENDINGS[given] if isinstance(given, str) else given)
    ),
    "output": lambda world, given: world.output().model_copy(update=given),
    "plan": lambda _, given: reports.PlanResult(
        **(_SIZES | given | {"grid": GridShape.of(*given.get("grid", (1, 1)))})
    ),
    "missing": lambda _, given: reports.InputsReport.of(
        [reports.MissingInput(**{"within_seconds": 7200, **one}) for one in given]
    ),
    "pushed": lambda world, given: reports.PushReport(
        **({"version": world.status["output"]["version"], "rows": 10, "seconds": 1.5} | given)
    ),
}


def _report(world: World, ahead: float = 0, output: Fields | None = None, **more: Any) -> Any:
    """By a clock so many seconds ahead of the operator's; ``at`` counts from the world's start."""
    log = more.pop("log", "")
    found = world.report(**more, at=world.now + timedelta(seconds=ahead))
    if output is not None:
        found = found.model_copy(update={"output": found.output.model_copy(update=output)})
    return found.model_copy(update={"log": log}) if log else found


def _done(decisions: list[Decision]) -> str:
    """What was applied, deleted and scaled, each kind of it once, and when the next step is due."""
    found = [part for decision in decisions for part in _actions(decision)]
    parts = list(dict.fromkeys(found))
    due = decisions[-1].requeue_after
    return ", ".join([*parts, "never again" if due is None else f"again in {due:.4g} s"])


def _actions(decision: Decision) -> list[str]:
    parts = [f"reset ports of {one['kind']}" for one in decision.reset_ports]
    for item in decision.apply:
        part = f"apply {item['kind']}"
        if item["kind"] == "StatefulSet":
            part += f" of {item['spec']['replicas']}"
        elif item["kind"] == "Pod":
            part += f" {item['metadata']['name']}"
        parts.append(part)
    parts += ["scale to zero"] if decision.scale_to_zero else []
    parts += ["delete all pods by one request"] if decision.clear else []
    for kind, of_kind in itertools.groupby(decision.delete, lambda one: one.kind):
        parts += [
            f"delete {kind} {one.name}" + " by force" * one.force
            if kind == "Pod"
            else f"delete {kind}"
            for one in of_kind
        ]
    return parts


def _parts(decisions: list[Decision], names: list[str]) -> list[str]:
    """Variables, volumes and fields of pods and their containers, by their names."""
    pods = [
        item["spec"].get("template", item)["spec"]
        for decision in decisions
        for item in decision.apply
        if item["kind"] in ("StatefulSet", "Pod")
    ]
    found = []
    for spec in pods:
        (container, *_) = spec["containers"]
        parts = dict(spec) | container
        for entry in [*container["env"], *spec["volumes"]]:
            value = {key: part for key, part in entry.items() if key != "name"}
            parts[entry["name"]] = value.get("value", value)
        found += [f"{name}={parts[name]}" for name in names if name in parts]
    return found


def _differences(before: Fields, after: Fields, which: tuple[str, ...]) -> list[str]:
    """The fields of a status that changed; conditions by their type."""
    old, new = (
        {name: text for name, text in _flat(status).items() if name.startswith(which)}
        for status in (before, after)
    )
    names = [*new, *(name for name in old if name not in new)]
    return [
        f"{name}: {new[name]}" if name in new else f"{name} is gone"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _flat(status: Fields) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in status.items():
        if key == "conditions":
            found |= {item["type"]: _condition(item) for item in value}
        elif isinstance(value, dict) and value:
            found |= {f"{key}.{inner}": text for inner, text in _flat(value).items()}
        elif not re.search(r"[hH]ash$|[dD]igest$|^request$|^versions$|^seed$", key):
            found[key] = value if isinstance(value, str) else json.dumps(value)
        elif key == "versions":
            found[key] = ", ".join(value)
    return found


def _condition(item: Fields) -> str:
    since = item["lastTransitionTime"][11:-1]
    message = f": {item['message']}" if item["message"] else ""
    return f"{item['status']} {item['reason']} since {since}{message}"


def _events(events: list[PendingEvent]) -> list[str]:
    names = {"Normal": "event", "Warning": "warning"}
    return [f"{names[event.kind]} {event.reason}: {event.message}" for event in events]
