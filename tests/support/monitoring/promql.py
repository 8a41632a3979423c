"""What PromQL expressions ask for: names of metrics, and which of them a table of metrics has."""

from __future__ import annotations

import re

from embertide.spec.metric_names import Metric

_NAME = re.compile(r"(?<![\w:\"])(?:[a-z_]+:)?embertide_[a-z0-9_]+(?::[a-z0-9_]+)?(?![\w\"])")
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')


def metrics_in(expression: str) -> set[str]:
    """Names of the metrics and recording rules in an expression; those in strings do not count."""
    return set(_NAME.findall(_STRINGS.sub('""', expression)))


def exposed(metric: Metric) -> tuple[str, ...]:
    """The names of the series that a metric has in Prometheus."""
    if metric.kind != "histogram":
        return (metric.name,)
    return tuple(f"{metric.name}_{part}" for part in ("bucket", "count", "sum"))
