"""What the cluster has to say when a test fails: its pods, events, and logs of that time.

All logs stay (``layout.py`` says where) until the next start; this is the part to read first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.cluster.fixture import KubernetesCluster

_COMPONENT_LINES = 8
_POD_LINES = 30
_EVENT_LINES = 40
# klog marks severity by the first letter; others name it.
_ALARMING = re.compile(r"^[EF]\d{4} |level=(error|fatal)|^panic:|^fatal error:")

Marks = dict[Path, int]


def mark(cluster: KubernetesCluster) -> Marks:
    """How long every log is now."""
    return {path: path.stat().st_size for path in _logs(cluster)}


def tell(cluster: KubernetesCluster, since: Marks) -> Iterator[tuple[str, str]]:
    """Titles and texts: what there is, and what has been logged since."""
    yield "cluster: pods", cluster.try_kubectl("get", "pods", "-A", "-o", "wide").stdout
    events = cluster.try_kubectl("get", "events", "-A", "--sort-by=.metadata.creationTimestamp")
    yield "cluster: events", "\n".join(events.stdout.splitlines()[-_EVENT_LINES:])
    for path in _logs(cluster):
        lines = _added(path, since.get(path, 0))
        if path.parent == cluster.layout.logs:
            lines = [line for line in lines if _ALARMING.search(line)][-_COMPONENT_LINES:]
        if lines:
            title = path.relative_to(cluster.layout.state)
            yield f"cluster: {title}", "\n".join(lines[-_POD_LINES:])


def _logs(cluster: KubernetesCluster) -> list[Path]:
    layout = cluster.layout
    components = [path for path in layout.logs.glob("*.log") if path.name != "audit.log"]
    return sorted(components) + sorted(layout.state.glob("node-*/pods/*/*/*.log"))


def _added(path: Path, start: int) -> list[str]:
    with path.open("rb") as log:
        log.seek(start)
        return log.read().decode(errors="replace").splitlines()
