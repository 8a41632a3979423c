"""A Grafana dashboard: panels laid out on its grid of 24 columns, variables, links."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.monitoring.boards.grafana import SOURCE, Json

_COLUMNS = 24
_REFRESH_ON_RANGE = 2


@dataclass
class Board:
    """A dashboard that is filled from left to right and top to bottom."""

    uid: str
    title: str
    description: str
    variables: list[Json]
    links: list[Json] = field(default_factory=list)
    _panels: list[Json] = field(default_factory=list)
    _x: int = 0
    _y: int = 0
    _height: int = 0

    def section(self, title: str) -> None:
        """A heading over the panels that follow."""
        self._break()
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": self._y}
        self._append({"type": "row", "title": title, "collapsed": False, "panels": []}, place)
        self._y += 1

    def add(self, panel: Json, width: int, height: int = 8) -> None:
        """Place a panel beside the last one, or below where there is no room."""
        if self._x + width > _COLUMNS:
            self._break()
        self._append(panel, {"h": height, "w": width, "x": self._x, "y": self._y})
        self._x, self._height = self._x + width, max(self._height, height)

    def _break(self) -> None:
        self._x, self._y, self._height = 0, self._y + self._height, 0

    def _append(self, panel: Json, place: Json) -> None:
        self._panels.append({"id": len(self._panels) + 1, "gridPos": place, **panel})

    def to_json(self) -> Json:
        """The dashboard as Grafana imports it."""
        return {
            "annotations": {"list": []},
            "description": self.description,
            "editable": False,
            "graphTooltip": 1,
            "links": self.links,
            "panels": self._panels,
            "refresh": "30s",
            "schemaVersion": 39,
            "tags": ["embertide"],
            "templating": {"list": [_source_variable(), *self.variables]},
            "time": {"from": "now-6h", "to": "now"},
            "timezone": "utc",
            "title": self.title,
            "uid": self.uid,
            "version": 1,
        }


def choice(
    name: str, label: str, values: str, *, several: bool = False, newest: bool = False
) -> Json:
    """A variable with the values of a ``label_values(...)`` query; ``several`` offers All."""
    return {
        **({"allValue": ".+"} if several else {}),
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if several else {},
        "datasource": SOURCE,
        "definition": values,
        "hide": 0,
        "includeAll": several,
        "label": label,
        "multi": several,
        "name": name,
        "query": {"query": values, "refId": name},
        "refresh": _REFRESH_ON_RANGE,
        "sort": 4 if newest else 1,
        "type": "query",
    }


def link(title: str, uid: str, variables: str = "") -> Json:
    """A link to another dashboard."""
    return {
        "asDropdown": False,
        "icon": "dashboard",
        "includeVars": False,
        "keepTime": True,
        "tags": [],
        "targetBlank": False,
        "title": title,
        "type": "link",
        "url": f"/d/{uid}{variables}",
    }


def _source_variable() -> Json:
    return {
        "current": {},
        "hide": 0,
        "includeAll": False,
        "label": "Data source",
        "multi": False,
        "name": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "type": "datasource",
    }
