"""A Grafana dashboard: panels laid out on its grid of 24 columns, variables, links."""

from __future__ import annotations

from dataclasses import dataclass, field

from grafana_foundation_sdk.models.dashboard import (
    AnnotationContainer,
    Dashboard,
    DashboardCursorSync,
    DashboardDashboardTemplating,
    DashboardDashboardTime,
    DashboardLink,
    DashboardLinkType,
    GridPos,
    Panel,
    RowPanel,
    VariableHide,
    VariableModel,
    VariableOption,
    VariableRefresh,
    VariableSort,
    VariableType,
)

from tools.dashboards.grafana import SOURCE

_COLUMNS = 24
_SCHEMA = 39
"""Of Grafana 10.3 and later, which convert it to their own when they read it."""


@dataclass
class Board:
    """A dashboard that is filled from left to right and top to bottom."""

    uid: str
    title: str
    description: str
    variables: list[VariableModel]
    links: list[DashboardLink] = field(default_factory=list)
    _panels: list[Panel | RowPanel] = field(default_factory=list)
    _x: int = 0
    _y: int = 0
    _height: int = 0

    def section(self, title: str) -> None:
        """A heading over the panels that follow."""
        self._break()
        self._append(RowPanel(title=title, panels=[]), GridPos(1, _COLUMNS, 0, self._y))
        self._y += 1

    def add(self, panel: Panel, width: int, height: int = 8) -> None:
        """Place a panel beside the last one, or below where there is no room."""
        if self._x + width > _COLUMNS:
            self._break()
        self._append(panel, GridPos(height, width, self._x, self._y))
        self._x, self._height = self._x + width, max(self._height, height)

    def _break(self) -> None:
        self._x, self._y, self._height = 0, self._y + self._height, 0

    def _append(self, panel: Panel | RowPanel, place: GridPos) -> None:
        panel.id_val, panel.grid_pos = len(self._panels) + 1, place
        self._panels.append(panel)

    def build(self) -> Dashboard:
        """The dashboard as Grafana imports it."""
        return Dashboard(
            uid=self.uid,
            title=self.title,
            description=self.description,
            annotations=AnnotationContainer([]),
            editable=False,
            graph_tooltip=DashboardCursorSync.CROSSHAIR,
            links=self.links,
            panels=self._panels,
            refresh="30s",
            schema_version=_SCHEMA,
            tags=["embertide"],
            templating=DashboardDashboardTemplating([_source_variable(), *self.variables]),
            time=DashboardDashboardTime("now-6h", "now"),
            timezone="utc",
            version=1,
        )


def choice(
    name: str, label: str, values: str, *, several: bool = False, newest: bool = False
) -> VariableModel:
    """A variable with the values of a ``label_values(...)`` query; ``several`` offers All."""
    return VariableModel(
        VariableType.QUERY,
        name,
        label,
        VariableHide.DONT_HIDE,
        all_value=".+" if several else None,
        current=VariableOption(True, ["All"], ["$__all"]) if several else None,
        datasource=SOURCE,
        definition=values,
        include_all=several,
        multi=several,
        query={"query": values, "refId": name},
        refresh=VariableRefresh.ON_TIME_RANGE_CHANGED,
        sort=VariableSort.NUMERICAL_DESC if newest else VariableSort.ALPHABETICAL_ASC,
    )


class VisibleLink(DashboardLink):
    """A link over the panels, where releases before 12 have it.

    The SDK writes each link into the menu of controls.
    """

    def to_json(self) -> dict[str, object]:
        """The link as Grafana imports it."""
        written = super().to_json()
        del written["placement"]
        return written


def link(title: str, uid: str, variables: str = "") -> DashboardLink:
    """A link to another dashboard."""
    return VisibleLink(
        title=title,
        type_val=DashboardLinkType.LINK,
        icon="dashboard",
        keep_time=True,
        tags=[],
        url=f"/d/{uid}{variables}",
    )


def _source_variable() -> VariableModel:
    return VariableModel(
        VariableType.DATASOURCE,
        "datasource",
        "Data source",
        VariableHide.DONT_HIDE,
        query="prometheus",
        refresh=VariableRefresh.ON_DASHBOARD_LOAD,
        regex="",
    )
