"""Panels of a Grafana dashboard.

Every panel is made by one of the functions below, which all take a title, a description, a unit
by Grafana's name and the queries; so no panel can be without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
BLUE, GREEN, ORANGE, RED = "semi-dark-blue", "green", "orange", "red"
YELLOW, PURPLE, GRAY = "yellow", "purple", "#8e8e8e"


@dataclass(frozen=True)
class Query:
    """PromQL and how it is asked: ``instant`` for one moment, else over the range."""

    expr: str
    legend: str = ""
    instant: bool = False
    format: str = "time_series"


def now(expr: str, legend: str = "") -> Query:
    """A query for the newest values."""
    return Query(expr, legend, instant=True)


def rows(expr: str) -> Query:
    """A query whose series become rows of a table."""
    return Query(expr, instant=True, format="table")


def stat(title: str, text: str, unit: str, query: Query, **field_options: Any) -> Json:
    """One number, or one number a series."""
    panel = _panel("stat", title, text, unit, [query], **field_options)
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    panel["options"] = {
        "colorMode": "value" if "thresholds" in field_options else "none",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": reduce,
        "textMode": field_options.get("text_mode", "auto"),
    }
    return panel


def graph(
    title: str,
    text: str,
    unit: str,
    *queries: Query,
    stacked: bool = False,
    colors: Mapping[str, str] | None = None,
    **field_options: Any,
) -> Json:
    """Lines over time; ``stacked`` ones are filled and add up. ``colors`` are by legend."""
    panel = _panel("timeseries", title, text, unit, list(queries), **field_options)
    panel["fieldConfig"]["overrides"] = [
        _override(name, color={"fixedColor": color, "mode": "fixed"})
        for name, color in (colors or {}).items()
    ]
    panel["fieldConfig"]["defaults"]["custom"] = {
        "drawStyle": "line",
        "fillOpacity": 45 if stacked else 6,
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
        **({"thresholdsStyle": {"mode": "dashed"}} if "thresholds" in field_options else {}),
    }
    panel["options"] = {
        "legend": {"calcs": ["lastNotNull"], "displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel


def bars(title: str, text: str, unit: str, *queries: Query, **field_options: Any) -> Json:
    """A horizontal bar for each series."""
    panel = _panel("bargauge", title, text, unit, list(queries), **{"minimum": 0, **field_options})
    panel["options"] = {
        "displayMode": "basic",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showUnfilled": True,
        "valueMode": "color",
    }
    return panel


def grid_map(title: str, text: str, unit: str, expr: str, **field_options: Any) -> Json:
    """A heat map over the P x M grid: rows are graph ranks, columns feature ranks.

    ``expr`` gives one series for each ``graph_rank`` and ``feature_rank``.
    """
    panel = _panel("table", title, text, unit, [rows(expr)], **field_options)
    defaults = panel["fieldConfig"]["defaults"]
    defaults["color"] = {"mode": "continuous-YlRd"}
    cell = {"type": "color-background", "mode": "basic"}
    defaults["custom"] = {"align": "center", "cellOptions": cell}
    corner = "graph_rank\\feature_rank"
    panel["fieldConfig"]["overrides"] = [
        _override(corner, custom__cellOptions={"type": "auto"}, unit="string")
    ]
    matrix = {"columnField": "feature_rank", "rowField": "graph_rank", "valueField": "Value"}
    panel["transformations"] = [{"id": "groupingToMatrix", "options": matrix}]
    panel["options"] = {"cellHeight": "md", "showHeader": True}
    return panel


def bucket_map(title: str, text: str, unit: str, expr: str) -> Json:
    """A heat map of a histogram over time; ``expr`` gives the rate of each bucket by ``le``."""
    query = Query(expr, "{{le}}", format="heatmap")
    panel = _panel("heatmap", title, text, unit, [query])
    panel["options"] = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "YlOrRd", "steps": 64, "fill": "dark-orange"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    return panel


def table(
    title: str,
    text: str,
    columns: dict[str, tuple[str, str]],
    *queries: Query,
    hidden: tuple[str, ...] = (),
) -> Json:
    """Series side by side, one row for each set of labels.

    ``columns`` maps a label, or ``Value #A`` for the first query, to its heading and unit, from
    left to right. ``hidden`` names columns that are not shown.
    """
    panel = _panel("table", title, text, "short", list(queries))
    panel["fieldConfig"]["defaults"]["custom"] = {"align": "auto", "filterable": True}
    panel["fieldConfig"]["overrides"] = [
        _override(heading, unit=unit) for heading, unit in columns.values()
    ]
    organize = {
        "excludeByName": dict.fromkeys(("Time", *hidden), True),
        "indexByName": {name: number for number, name in enumerate(columns)},
        "renameByName": {name: heading for name, (heading, _) in columns.items()},
    }
    panel["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": organize},
    ]
    panel["options"] = {"cellHeight": "sm", "showHeader": True}
    return panel


def timeline(title: str, text: str, query: Query) -> Json:
    """A band for each series, coloured where its value is 1."""
    panel = _panel("state-timeline", title, text, "none", [query])
    panel["fieldConfig"]["defaults"]["custom"] = {"fillOpacity": 80, "lineWidth": 0}
    shown = {"0": {"color": "transparent", "text": " "}, "1": {"color": BLUE, "text": " "}}
    panel["fieldConfig"]["defaults"]["mappings"] = [{"options": shown, "type": "value"}]
    panel["options"] = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return panel


def levels(*steps: tuple[float, str], base: str = GREEN) -> Json:
    """Colours by value: ``base`` below the first step."""
    first: list[Json] = [{"color": base, "value": None}]
    return {
        "mode": "absolute",
        "steps": first + [{"color": color, "value": value} for value, color in steps],
    }


def _panel(
    kind: str,
    title: str,
    text: str,
    unit: str,
    queries: list[Query],
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    decimals: int | None = None,
    thresholds: Json | None = None,
    text_mode: str | None = None,
) -> Json:
    defaults: Json = {
        "color": {"mode": "thresholds" if thresholds else "palette-classic"},
        "mappings": [],
        "noValue": "none",
        "thresholds": thresholds or levels(base=BLUE),
        "unit": unit,
    }
    if kind in ("bargauge",) and not thresholds:
        defaults["color"] = {"fixedColor": BLUE, "mode": "fixed"}
    given = {"min": minimum, "max": maximum, "decimals": decimals}
    defaults |= {name: value for name, value in given.items() if value is not None}
    return {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [_target(query, "ABCDEFGHIJ"[n]) for n, query in enumerate(queries)],
    }


def _target(query: Query, letter: str) -> Json:
    return {
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "format": query.format,
        "instant": query.instant,
        "legendFormat": query.legend or "__auto",
        "range": not query.instant,
        "refId": letter,
    }


def _override(heading: str, **properties: Any) -> Json:
    values = [{"id": name.replace("__", "."), "value": v} for name, v in properties.items()]
    return {"matcher": {"id": "byName", "options": heading}, "properties": values}
