"""Panels of a Grafana dashboard, of the types that Grafana's own SDK generates from its schema.

Every panel is made by one of the functions below, which all take a title, a description, a unit
by Grafana's name and the queries; so no panel can be without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict, Unpack

from grafana_foundation_sdk.models import (
    bargauge,
    common,
    dashboard,
    heatmap,
    statetimeline,
    timeseries,
)
from grafana_foundation_sdk.models import (
    stat as stats,
)
from grafana_foundation_sdk.models import (
    table as tables,
)
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    FieldColor,
    FieldColorModeId,
    FieldConfig,
    FieldConfigSource,
    Panel,
    Threshold,
    ThresholdsConfig,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import Dataquery, PromQueryFormat, QueryEditorMode

SOURCE = common.DataSourceRef("prometheus", "${datasource}")
BLUE, GREEN, ORANGE, RED = "semi-dark-blue", "green", "orange", "red"
YELLOW, PURPLE, GRAY = "yellow", "purple", "#8e8e8e"

_NEWEST = common.ReduceDataOptions(calcs=["lastNotNull"], fields="", values=False)


@dataclass(frozen=True)
class Query:
    """PromQL and how it is asked: ``instant`` for one moment, else over the range."""

    expr: str
    legend: str = ""
    instant: bool = False
    format: PromQueryFormat = PromQueryFormat.TIME_SERIES


class FieldOptions(TypedDict, total=False):
    """How values are shown."""

    minimum: float
    maximum: float
    decimals: int
    thresholds: ThresholdsConfig


def now(expr: str, legend: str = "") -> Query:
    """A query for the newest values."""
    return Query(expr, legend, instant=True)


def rows(expr: str) -> Query:
    """A query whose series become rows of a table."""
    return Query(expr, instant=True, format=PromQueryFormat.TABLE)


def stat(
    title: str,
    text: str,
    unit: str,
    query: Query,
    text_mode: common.BigValueTextMode = common.BigValueTextMode.AUTO,
    **field_options: Unpack[FieldOptions],
) -> Panel:
    """One number, or one number a series."""
    colored = "thresholds" in field_options
    options = stats.Options(
        color_mode=common.BigValueColorMode.VALUE if colored else common.BigValueColorMode.NONE,
        graph_mode=common.BigValueGraphMode.NONE,
        reduce_options=_NEWEST,
        text_mode=text_mode,
    )
    return _panel("stat", title, text, _fields(unit, **field_options), [query], options)


def graph(
    title: str,
    text: str,
    unit: str,
    *queries: Query,
    stacked: bool = False,
    colors: Mapping[str, str] | None = None,
    **field_options: Unpack[FieldOptions],
) -> Panel:
    """Lines over time; ``stacked`` ones are filled and add up. ``colors`` are by legend."""
    fields = _fields(unit, **field_options)
    fields.custom = timeseries.FieldConfig(
        draw_style=common.GraphDrawStyle.LINE,
        fill_opacity=45 if stacked else 6,
        line_interpolation=common.LineInterpolation.LINEAR,
        line_width=1,
        show_points=common.VisibilityMode.AUTO,
        span_nulls=False,
        stacking=common.StackingConfig(
            common.StackingMode.NORMAL if stacked else common.StackingMode.NONE, "A"
        ),
    )
    options = timeseries.Options(
        legend=_legend(["lastNotNull"]),
        tooltip=common.VizTooltipOptions(
            common.TooltipDisplayMode.MULTI, common.SortOrder.DESCENDING
        ),
    )
    panel = _panel("timeseries", title, text, fields, list(queries), options)
    for name, color in (colors or {}).items():
        _override(panel, name, color=FieldColor(FieldColorModeId.FIXED, color))
    return panel


def bars(
    title: str, text: str, unit: str, *queries: Query, **field_options: Unpack[FieldOptions]
) -> Panel:
    """A horizontal bar for each series."""
    fields = _fields(unit, **field_options)
    fields.min_val = fields.min_val or 0
    if "thresholds" not in field_options:
        fields.color = FieldColor(FieldColorModeId.FIXED, BLUE)
    options = bargauge.Options(
        display_mode=common.BarGaugeDisplayMode.BASIC,
        orientation=common.VizOrientation.HORIZONTAL,
        reduce_options=_NEWEST,
        show_unfilled=True,
        value_mode=common.BarGaugeValueMode.COLOR,
        legend=_legend([], shown=False),
    )
    return _panel("bargauge", title, text, fields, list(queries), options)


def grid_map(
    title: str, text: str, unit: str, expr: str, **field_options: Unpack[FieldOptions]
) -> Panel:
    """A heat map over the P x M grid: rows are graph ranks, columns feature ranks.

    ``expr`` gives one series for each ``graph_rank`` and ``feature_rank``.
    """
    fields = _fields(unit, **field_options)
    fields.color = FieldColor(FieldColorModeId.CONTINUOUS_YL_RD)
    cell = common.TableColoredBackgroundCellOptions(common.TableCellBackgroundDisplayMode.BASIC)
    fields.custom = common.TableFieldOptions(
        align=common.FieldTextAlignment.CENTER, cell_options=cell
    )
    options = tables.Options(cell_height=common.TableCellHeight.MD)
    panel = _panel("table", title, text, fields, [rows(expr)], options)
    corner = "graph_rank\\feature_rank"
    _override(panel, corner, custom__cellOptions=common.TableAutoCellOptions(), unit="string")
    matrix = {"columnField": "feature_rank", "rowField": "graph_rank", "valueField": "Value"}
    panel.transformations = [DataTransformerConfig("groupingToMatrix", options=matrix)]
    return panel


def bucket_map(title: str, text: str, unit: str, expr: str) -> Panel:
    """A heat map of a histogram over time; ``expr`` gives the rate of each bucket by ``le``."""
    query = Query(expr, "{{le}}", format=PromQueryFormat.HEATMAP)
    options = heatmap.Options(
        calculate=False,
        cell_gap=1,
        color=heatmap.HeatmapColorOptions(
            heatmap.HeatmapColorMode.SCHEME, "YlOrRd", "dark-orange", exponent=0.5, steps=64
        ),
        filter_values=heatmap.FilterValueRange(le=1e-9),
        legend=heatmap.HeatmapLegend(show=True),
        rows_frame=heatmap.RowsHeatmapOptions(layout=common.HeatmapCellLayout.AUTO),
        show_value=common.VisibilityMode.NEVER,
        tooltip=heatmap.HeatmapTooltip(common.TooltipDisplayMode.SINGLE, y_histogram=False),
        y_axis=heatmap.YAxisConfig(unit, False, axis_placement=common.AxisPlacement.LEFT),
    )
    return _panel("heatmap", title, text, _fields(unit), [query], options)


def table(
    title: str,
    text: str,
    columns: dict[str, tuple[str, str]],
    *queries: Query,
    hidden: tuple[str, ...] = (),
) -> Panel:
    """Series side by side, one row for each set of labels.

    ``columns`` maps a label, or ``Value #A`` for the first query, to its heading and unit, from
    left to right. ``hidden`` names columns that are not shown.
    """
    fields = _fields("short")
    fields.custom = common.TableFieldOptions(
        align=common.FieldTextAlignment.AUTO,
        cell_options=common.TableAutoCellOptions(),
        filterable=True,
    )
    options = tables.Options(cell_height=common.TableCellHeight.SM)
    panel = _panel("table", title, text, fields, list(queries), options)
    for heading, unit in columns.values():
        _override(panel, heading, unit=unit)
    organize = {
        "excludeByName": dict.fromkeys(("Time", *hidden), True),
        "indexByName": {name: number for number, name in enumerate(columns)},
        "renameByName": {name: heading for name, (heading, _) in columns.items()},
    }
    panel.transformations = [
        DataTransformerConfig("merge", options={}),
        DataTransformerConfig("organize", options=organize),
    ]
    return panel


def timeline(title: str, text: str, query: Query) -> Panel:
    """A band for each series, coloured where its value is 1."""
    fields = _fields("none")
    fields.custom = statetimeline.FieldConfig(fill_opacity=80, line_width=0)
    shown = {
        value: dashboard.ValueMappingResult(text=" ", color=color)
        for value, color in (("0", "transparent"), ("1", BLUE))
    }
    fields.mappings = [dashboard.ValueMap(shown)]
    options = statetimeline.Options(
        align_value=common.TimelineValueAlignment.LEFT,
        legend=_legend([], shown=False),
        merge_values=True,
        row_height=0.8,
        show_value=common.VisibilityMode.NEVER,
        tooltip=common.VizTooltipOptions(common.TooltipDisplayMode.SINGLE, common.SortOrder.NONE),
    )
    return _panel("state-timeline", title, text, fields, [query], options)


def levels(*steps: tuple[float, str], base: str = GREEN) -> ThresholdsConfig:
    """Colours by value: ``base`` below the first step."""
    higher = [Threshold(value, color) for value, color in steps]
    return ThresholdsConfig(ThresholdsMode.ABSOLUTE, [Threshold(None, base), *higher])


def _fields(
    unit: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    decimals: int | None = None,
    thresholds: ThresholdsConfig | None = None,
) -> FieldConfig:
    by_value, by_series = FieldColorModeId.THRESHOLDS, FieldColorModeId.PALETTE_CLASSIC
    return FieldConfig(
        color=FieldColor(by_value if thresholds else by_series),
        decimals=decimals,
        mappings=[],
        max_val=maximum,
        min_val=minimum,
        no_value="none",
        thresholds=thresholds or levels(base=BLUE),
        unit=unit,
    )


def _panel(
    kind: str, title: str, text: str, fields: FieldConfig, queries: list[Query], options: object
) -> Panel:
    return Panel(
        kind,
        title=title,
        description=text,
        datasource=SOURCE,
        field_config=FieldConfigSource(fields, []),
        options=options,
        targets=[_target(query, "ABCDEFGHIJ"[n]) for n, query in enumerate(queries)],
    )


def _target(query: Query, letter: str) -> Dataquery:
    return Dataquery(
        datasource=SOURCE,
        editor_mode=QueryEditorMode.CODE,
        expr=query.expr,
        format_val=query.format,
        instant=query.instant,
        legend_format=query.legend or "__auto",
        range_val=not query.instant,
        ref_id=letter,
    )


def _legend(calculations: list[str], *, shown: bool = True) -> common.VizLegendOptions:
    return common.VizLegendOptions(
        display_mode=common.LegendDisplayMode.LIST,
        placement=common.LegendPlacement.BOTTOM,
        show_legend=shown,
        calcs=calculations,
    )


def _override(panel: Panel, heading: str, **properties: object) -> None:
    """Set properties of the field with this name; ``__`` stands for a dot."""
    override = dashboard.DashboardFieldConfigSourceOverrides(
        matcher=dashboard.MatcherConfig("byName", heading),
        properties=[
            dashboard.DynamicConfigValue(name.replace("__", "."), value)
            for name, value in properties.items()
        ],
    )
    assert panel.field_config is not None
    panel.field_config.overrides = [*(panel.field_config.overrides or []), override]
