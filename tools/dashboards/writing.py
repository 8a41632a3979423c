"""The dashboards' files in the chart."""

from __future__ import annotations

import json

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tools.dashboards.fleet import fleet
from tools.dashboards.job import job


def fleet_json() -> str:
    """The dashboard of all jobs."""
    return _to_text(fleet())


def job_json() -> str:
    """The dashboard of one job."""
    return _to_text(job())


def _to_text(dashboard: Dashboard) -> str:
    """A file's content; keys are sorted as Grafana's export sorts them."""
    return json.dumps(dashboard, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
