"""Pages, schemas and dashboards that are made from code: ``python -m tools.pages``."""

from __future__ import annotations

import importlib

from embertide.spec.crd import crd_yaml, schedule_crd

MADE = {
    "charts/embertide/README.md": "tools.pages.chart:page",
    "charts/embertide/dashboards/fleet.json": "tools.dashboards.writing:fleet_json",
    "charts/embertide/dashboards/job.json": "tools.dashboards.writing:job_json",
    "charts/embertide/files/embeddingjobs.yaml": "embertide.spec.crd:crd_yaml",
    "charts/embertide/files/embeddingschedules.yaml": "tools.pages:schedules_yaml",
    "charts/embertide/values.schema.json": "tools.pages.values_schema:page",
    "docs/api.md": "tools.pages.api:page:api.md",
    "docs/api/input.md": "tools.pages.api:page:api/input.md",
    "docs/api/output.md": "tools.pages.api:page:api/output.md",
    "docs/api/report.md": "tools.pages.api:page:api/report.md",
    "docs/api/running.md": "tools.pages.api:page:api/running.md",
    "docs/api/status.md": "tools.pages.api:page:api/status.md",
    "docs/cli.md": "tools.pages.cli:page",
    "docs/cli/indexes.md": "tools.pages.cli:group:cli/indexes.md",
    "docs/cli/kubernetes.md": "tools.pages.cli:group:cli/kubernetes.md",
    "docs/cli/models.md": "tools.pages.cli:group:cli/models.md",
    "docs/cli/run.md": "tools.pages.cli:group:cli/run.md",
    "docs/cli/versions.md": "tools.pages.cli:group:cli/versions.md",
    "docs/convolutions.md": "tools.pages.convolutions:page",
    "docs/examples.md": "tools.pages.examples:page",
    "docs/metrics.md": "tools.pages.metrics:page",
    "docs/model.md": "tools.pages.model:page",
    "docs/model/dgl-attention.md": "tools.pages.model:family:model/dgl-attention.md",
    "docs/model/dgl-filters.md": "tools.pages.model:family:model/dgl-filters.md",
    "docs/model/dgl-sums.md": "tools.pages.model:family:model/dgl-sums.md",
    "docs/model/pyg-attention.md": "tools.pages.model:family:model/pyg-attention.md",
    "docs/model/pyg-filters.md": "tools.pages.model:family:model/pyg-filters.md",
    "docs/model/pyg-sums.md": "tools.pages.model:family:model/pyg-sums.md",
    "docs/model/typed.md": "tools.pages.model:typed",
    "docs/program.md": "tools.pages.program:page",
}
"""File -> the function that makes its text, with what it is called with."""
OF_DGL = ("docs/convolutions.md", "docs/examples.md")
"""Files that have to be made where DGL is."""


def make(file: str) -> str:
    """The text of a file of `MADE`."""
    module, name, *given = MADE[file].split(":")
    text: str = getattr(importlib.import_module(module), name)(*given)
    return text


def schedules_yaml() -> str:
    """The definition of EmbeddingSchedule."""
    return crd_yaml(schedule_crd())
