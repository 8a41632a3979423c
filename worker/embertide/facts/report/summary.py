"""The head of the page: what was computed in what time, and the run's key figures."""

from __future__ import annotations

from embertide.facts.report.markup import Child, Html, definitions, join, tag
from embertide.facts.report.numbers import (
    NO_BREAK,
    count,
    duration,
    rate,
    share,
    short_count,
    size,
    small,
    some,
    without_secrets,
)
from embertide.facts.report.run import Run
from embertide.facts.telemetry.comparison import COMPARED
from embertide.facts.telemetry.self_check import CHECKED
from embertide.spec.version_names import begun


def head(run: Run) -> Html:
    """The job, the run in one line, its version, and its warnings."""
    report = run.report
    grid = f"{report.grid.graph} × {report.grid.feature}".replace(" ", NO_BREAK)
    workers = "one worker" if run.alone else f"a {grid} grid of {report.grid.workers} workers"
    parts = (
        tag("strong", f"{count(report.nodes)} nodes × {report.dim}"),
        " in ",
        tag("strong", duration(report.total_seconds)),
        f" over {count(report.edges)} edges, on {workers}.",
    )
    return tag(
        "header",
        tag("p", "Embertide run report", class_="eyebrow"),
        tag("h1", title(run)),
        tag("p", *parts, class_="headline"),
        _facts(run),
        *(tag("p", tag("strong", "Warning: "), text, class_="warning") for text in report.warnings),
    )


def title(run: Run) -> str:
    """The job's name."""
    return str(run.manifest.get("job") or run.report.version)


def _facts(run: Run) -> Html:
    report = run.report
    began = begun(report.version).strftime("%Y-%m-%d %H:%M:%S UTC")
    created = str(run.manifest.get("created", ""))[:19].replace("T", " ")
    passed = report.not_current or "a later run or a rollback holds LATEST"
    current = "yes" if report.current else f"no: {passed}"
    current = "no: the gate holds it" if report.held else current
    facts: dict[str, Child] = {
        "Version": tag("code", report.version),
        "Asked for": began,
        "Published": f"{created} UTC" if created else None,
        "Current when published": current,
        "Layers": "; ".join([*report.kept.sentences, *report.refresh.sentences]) or None,
        "Targets": "; ".join(report.chosen.sentences) or None,
        "At": tag("code", without_secrets(report.uri), class_="uri"),
    }
    return tag("div", definitions(facts), class_="facts")


def tiles(run: Run) -> Html:
    """The run's key figures, each with the figure to compare it with."""
    report = run.report
    found = [
        _tile("Run time", duration(report.total_seconds), _slowest(run)),
        *([_started(report.start_seconds)] if report.start_seconds else []),
        _tile(
            "Ingest",
            rate(report.ingest_edges_per_second, "edges"),
            "edges read, mapped, sorted into the graph"
            + (", or read back of a kept one" if report.kept.graph else ""),
        ),
        _tile("Inference", rate(report.infer_edges_per_second, "edges"), _layers_of(run)),
        _memory(run),
        *([] if run.alone else [_traffic(run), _waiting(run)]),
        _reference(run),
        _checked(run),
        _changed(run),
    ]
    return tag("ul", *(tile for tile in found if tile is not None), class_="tiles")


def _tile(name: str, value: str, below: Child, state: str = "") -> Html:
    return tag(
        "li",
        tag("span", name, class_="name"),
        tag("span", value, class_="figure"),
        tag("span", below, class_="below"),
        class_=f"tile {state}".strip(),
    )


def _started(seconds: float) -> Html:
    return _tile("Start", duration(seconds), "from the command, or a pod's attempt, to the workers")


def _slowest(run: Run) -> str:
    stages = {name: s for name, s in run.report.stages.items() if name != "sample"}
    if not stages:
        return ""
    name = max(stages, key=lambda name: stages[name])
    return f"{share(stages[name], run.report.total_seconds)} of it in {name}"


def _layers_of(run: Run) -> str:
    facts = run.report.facts
    if facts is None:
        return "edges of all layers"
    convs = sorted({layer.conv for layer in facts.layers})
    layers = f"{some(facts.graph_layers, 'layer')} of {', '.join(convs)}"
    if run.manifest.get("fanout", "full") == "full":
        return f"{layers}, each over all edges"
    return f"{layers}, counted as if each read all edges; it read a sample"


def _memory(run: Run) -> Html | None:
    fullest = run.fullest
    if fullest is None:
        return None
    of_plan = share(fullest.used_bytes, fullest.planned_bytes)
    beyond = 0 < fullest.planned_bytes < fullest.used_bytes
    whose = "beyond the imports" if run.alone else "of the fullest worker, beyond its imports"
    below = f"{whose}: {of_plan} of the plan"
    return _tile("Peak memory", size(fullest.used_bytes), below, "bad" if beyond else "")


def _traffic(run: Run) -> Html:
    groups = sum(item.groups for item in run.report.traffic)
    below = f"{share(run.sent, run.planned_sent)} of the plan, in {short_count(groups)} groups"
    if run.read_in_place:
        below += f"; {size(run.read_in_place)} read in place"
    return _tile("Moved between workers", size(run.sent), below)


def _waiting(run: Run) -> Html:
    below = f"{duration(run.waited)} of a worker's time, on average"
    return _tile("Waiting for others", share(run.waited, run.seconds), below)


def _reference(run: Run) -> Html:
    found = list(run.references.values())
    if not found:
        return _tile("Reference", "none", "the model has none, or a fanout was sampled")
    rows, beyond = (sum(of[name] for of in found) for name in ("rows", "beyond"))
    below = (
        f"{count(rows)} rows; largest error {small(max(of['largest_error'] for of in found))} of"
        f" the largest value; {small(found[0]['tolerance'])} is allowed"
    )
    words = f"{count(beyond)} differ" if beyond else "all agree"
    return _tile("Compared with reference", words, below, "bad" if beyond else "good")


def _checked(run: Run) -> Html | None:
    """The rows that were computed a second time; None where none were."""
    found = run.report.self_check
    if found is None or found.state != CHECKED:
        return None
    error = max(found.largest_errors.values(), default=0.0)
    below = f"{count(found.rows)} rows of all layers; largest error {small(error)}"
    return _tile("Computed a second time", "all agree", below, "good")


def _changed(run: Run) -> Html | None:
    """The rows that changed, and how many neighbours stayed; None where nothing was compared."""
    found = run.report.comparison
    if found is None or found.state != COMPARED:
        return None
    rows = sum(of_type.rows for of_type in found.types)
    changed = sum((of.changed_rows or 0) + (of.new_rows or 0) for of in found.types)
    kept = [of_type.overlap for of_type in found.types if of_type.overlap is not None]
    below = f"{min(kept):.1%} of their neighbours kept" if kept else "since the version before"
    state = "bad" if run.report.held else ""
    return _tile("Rows new or changed", share(changed, rows), below, state)


def navigation(sections: list[tuple[str, str]]) -> Html:
    """Links to the page's parts: (anchor, title)."""
    links = (tag("li", tag("a", words, href=f"#{name}")) for name, words in sections)
    return tag("nav", tag("ul", join(links)), aria_label="Parts of this report")
