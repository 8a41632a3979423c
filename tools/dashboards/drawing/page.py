"""A dashboard as one HTML page, and a picture of it by a headless Chromium."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.monitoring.prometheus import Prometheus, Series
from tools.dashboards.panels import Json, PanelQuery, queries

_HERE = Path(__file__).resolve().parent
_WIDTH = 1600
_CELL_PIXELS = 38
_HEAD_PIXELS = 80
_POINTS = 240

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><style>{style}</style></head>
<body><div id="board"></div>
<script>const BOARD = {board}, DATA = {data}, TIME = {time}, STEP = {step};</script>
<script>{script}</script></body></html>
"""


def page(
    dashboard: Json,
    prometheus: Prometheus,
    variables: Mapping[str, str],
    begin: float,
    end: float,
) -> str:
    """The dashboard with what Prometheus answers for a span of Unix seconds."""
    step = max(1.0, round((end - begin) / _POINTS))
    data: dict[int, list[list[Json]]] = {}
    for query in queries(dashboard):
        data.setdefault(query.panel["id"], []).append(
            _answer(query, prometheus, variables, begin, end, step)
        )
    return _PAGE.format(
        style=(_HERE / "page.css").read_text(),
        script=(_HERE / "draw.js").read_text(),
        board=_in_script(dashboard),
        data=_in_script(data),
        time=json.dumps([begin, end]),
        step=step,
    )


def picture(html: Path, image: Path, dashboard: Json) -> None:
    """Draw a page into a PNG or WebP as high as the dashboard; RuntimeError without Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise RuntimeError("pictures are drawn by Chromium: apt-get install chromium")
    cells = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in dashboard["panels"])
    height = _HEAD_PIXELS + cells * _CELL_PIXELS
    options = ("--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu")
    size = f"--window-size={_WIDTH},{height}"
    command = [browser, *options, size, f"--screenshot={image}", html.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def _answer(
    query: PanelQuery,
    prometheus: Prometheus,
    variables: Mapping[str, str],
    begin: float,
    end: float,
    step: float,
) -> list[Json]:
    expression = query.expression(variables)
    if query.target["instant"]:
        found = prometheus.query(expression, end)
    else:
        found = prometheus.query_range(expression, begin, end, step)
    if query.target["format"] == "table":
        found = _with_all_labels(found)
    return [_to_json(series, query.target["legendFormat"]) for series in found]


def _with_all_labels(found: list[Series]) -> list[Series]:
    """A table's rows: a label that a series lacks, since it is empty, is an empty cell."""
    empty = dict.fromkeys((name for series in found for name in series.labels), "")
    return [Series(empty | series.labels, series.points) for series in found]


def _to_json(series: Series, legend: str) -> Json:
    points = [(time, value) for time, value in series.points if math.isfinite(value)]
    text = re.sub(r"{{(\w+)}}", lambda name: series.labels.get(name[1], ""), legend)
    return {"labels": series.labels, "legend": text, "points": points or series.points[-1:]}


def _in_script(value: Any) -> str:
    """JSON that cannot end the script it stands in; NaN is null."""
    return re.sub(r"\bNaN\b", "null", json.dumps(value)).replace("</", "<\\/")
