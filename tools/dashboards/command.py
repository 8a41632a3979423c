"""Pictures of the dashboards: ``python -m tools.dashboards COMMAND``.

pictures FOLDER  draw them into docs/images from what a Prometheus kept, as Grafana would, with
                 Chromium; tests/cluster/test_monitoring.py leaves such a folder behind:
                 make test ARGS="tests/cluster/test_monitoring.py --basetemp=/tmp/watched"
                 and then /tmp/watched/prometheus0
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support.go_programs import program
from tests.support.monitoring.prometheus import Prometheus
from tests.support.paths import ROOT
from tools.dashboards.drawing.page import page, picture
from tools.dashboards.panels import FILES, load

_IMAGES = ROOT / "docs" / "images"
_JOB = "healthy"
_CHOSEN = f'job_name="{_JOB}"'
_START = f"embertide_job_start_timestamp_seconds{{{_CHOSEN}}}"
# The job has completed before.
_END = "embertide_push_last_success_timestamp_seconds"
# The last of the faults, and gone with the operator.
_FAULTY = 'ALERTS{alertname="EmbertideJobNotStarting", alertstate="firing"}'
_KEPT = "1d"
_BEFORE_SECONDS = 6.0
"""How long before the last alert the fleet is shown: an alert outlives the operator's metrics by
two scrapes."""
_AFTER_SECONDS = 8.0
"""How much is shown of what follows a push: until the operator's metrics were scraped."""


def main(words: list[str]) -> int:
    """The exit status."""
    match words:
        case ["pictures", folder]:
            draw_pictures(Path(folder))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def draw_pictures(folder: Path) -> None:
    """One picture a dashboard, of the run that a stopped Prometheus has in its folder."""
    prometheus = Prometheus(program("prometheus"), folder, [], [])
    prometheus.start()
    try:
        (started,) = prometheus.query(f"max by (job_namespace) (last_over_time({_START}[{_KEPT}]))")
        (ended,) = prometheus.query(f"max(last_over_time({_END}{{{_CHOSEN}}}[{_KEPT}]))")
        (last,) = prometheus.query(f"max(max_over_time(timestamp({_FAULTY})[{_KEPT}:1s]))")
        spans = {
            "job": (started.value, ended.value + _AFTER_SECONDS),
            "fleet": (started.value, last.value - _BEFORE_SECONDS),
        }
        for path in FILES:
            begin, end = spans[path.stem]
            variables = {
                "namespace": started.labels["job_namespace"],
                "job": _JOB,
                "attempt": "1",
                "__range": "10m",
                "__interval": "2s",
                "__rate_interval": "8s",
            }
            _draw(path, page(load(path), prometheus, variables, begin, end))
    finally:
        prometheus.stop()


def _draw(path: Path, html: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "page.html")
        file.write_text(html)
        picture(file, _IMAGES / f"dashboard-{path.stem}.webp", load(path))
