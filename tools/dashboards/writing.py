"""The dashboards' files in the chart: what they hold and where they are."""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.support.paths import ROOT
from tools.dashboards.fleet import fleet
from tools.dashboards.job import job

FOLDER = ROOT / "charts" / "embertide" / "dashboards"


def dashboards() -> dict[Path, Dashboard]:
    """Every dashboard by its file."""
    return {FOLDER / "fleet.json": fleet(), FOLDER / "job.json": job()}


def to_text(dashboard: Dashboard) -> str:
    """A file's content; keys are sorted as Grafana's export sorts them."""
    return json.dumps(dashboard, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def write() -> None:
    """Write every file again."""
    FOLDER.mkdir(exist_ok=True)
    for path, dashboard in dashboards().items():
        path.write_text(to_text(dashboard))
