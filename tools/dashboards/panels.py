"""The panels of a dashboard and their queries, as Grafana would send them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

FOLDER = ROOT / "charts" / "embertide" / "dashboards"
FILES = sorted(FOLDER.glob("*.json"))

Json = dict[str, Any]


@dataclass(frozen=True)
class PanelQuery:
    """One query of a panel; ``refId`` is its letter."""

    panel: Json
    target: Json

    @property
    def name(self) -> str:
        """Panel and letter, for messages."""
        return f"{self.panel['title']} {self.target['refId']}"

    def expression(self, variables: Mapping[str, str]) -> str:
        """PromQL without variables; KeyError for one that is not given."""
        return re.sub(r"\$([a-z_]\w*)", lambda found: variables[found[1]], self.target["expr"])


def load(path: Path) -> Json:
    """A dashboard."""
    dashboard: Json = json.loads(path.read_text())
    return dashboard


def panels(dashboard: Json) -> list[Json]:
    """Every panel that shows something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: Json) -> Iterator[PanelQuery]:
    """Every query of every panel."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield PanelQuery(panel, target)


def variables(dashboard: Json) -> list[Json]:
    """The dashboard's variables, the data source among them."""
    found: list[Json] = dashboard["templating"]["list"]
    return found
