"""The page: its parts in order, in a document that may load nothing and run nothing."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from embertide.facts.report.balance import balance
from embertide.facts.report.changes import changes
from embertide.facts.report.charts import hatches
from embertide.facts.report.facts import graph, inputs, model, settings
from embertide.facts.report.markup import Html, tag
from embertide.facts.report.memory import memory
from embertide.facts.report.phases import phases
from embertide.facts.report.run import Run
from embertide.facts.report.self_check import self_check
from embertide.facts.report.summary import head, navigation, tiles, title
from embertide.facts.report.timeline import timeline
from embertide.facts.report.traffic import traffic
from embertide.facts.telemetry.report import RunReport
from embertide.spec.version_names import REPORT_DATA

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
"""What a browser holds the page to, should any of its text ever become markup."""
_PARTS = (
    ("changes", "Changes", changes),
    ("self-check", "Self-check", self_check),
    ("timeline", "Timeline", timeline),
    ("layers", "Computing and waiting", phases),
    ("communication", "Communication", traffic),
    ("balance", "Balance", balance),
    ("memory", "Memory", memory),
    ("inputs", "Inputs", inputs),
    ("graph", "Graph", graph),
    ("model", "Model", model),
    ("settings", "Settings", settings),
)


def draw_page(report: RunReport, manifest: dict[str, Any]) -> str:
    """The report of a run as an HTML document that needs nothing else.

    Args:
        manifest: of the version that the run published.
    """
    run = Run(report, manifest)
    drawn = [(name, words, part(run)) for name, words, part in _PARTS]
    found = [(name, words, part) for name, words, part in drawn if part is not None]
    body = tag(
        "body",
        hatches(),
        tag("a", "To the report", href="#main", class_="skip"),
        head(run),
        navigation([(name, words) for name, words, _ in found]),
        tag("main", tiles(run), *(part for _, _, part in found), id="main"),
        _foot(run),
    )
    return f"<!DOCTYPE html>\n{tag('html', _head(run), body, lang='en')}\n"


def _head(run: Run) -> Html:
    style = files(__package__).joinpath("style.css").read_text()
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{title(run)}, {run.report.version}: Embertide run report"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(style)),
    )


def _foot(run: Run) -> Html:
    version = run.manifest.get("libraries", {}).get("embertide", "")
    words = (
        f"Computed by embertide {version}. The data of this page are in ",
        tag("code", REPORT_DATA),
        " beside the version's manifest; ",
        tag("code", "embertide report"),
        " draws it again.",
    )
    return tag("footer", tag("p", *words))
