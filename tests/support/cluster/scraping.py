"""Metrics as a Prometheus would read them: the operator's, and workers'."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from embertide.spec.metric_names import Metric
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import leading_pod


@dataclass(frozen=True)
class Scrape:
    """The samples of one scrape."""

    samples: list[tuple[str, dict[str, str], float]]

    @classmethod
    def of(cls, text: str) -> Scrape:
        """Of Prometheus' text format."""
        families = text_string_to_metric_families(text)
        found = [(s.name, s.labels, s.value) for family in families for s in family.samples]
        return cls(found)

    def all(self, metric: Metric, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of a metric's samples that carry these labels."""
        return [
            (having, value)
            for name, having, value in self.samples
            if name == metric.name and labels.items() <= having.items()
        ]

    def one(self, metric: Metric, **labels: str) -> float:
        """The value of the only such sample."""
        ((_, value),) = self.all(metric, **labels)
        return value


def scrape_operator(cluster: KubernetesCluster) -> Scrape:
    """The metrics of the operator's leader now; none of them while it does not answer."""
    address = leading_pod(cluster)["status"].get("podIP", "")
    try:
        with urllib.request.urlopen(f"http://{address}:8080/metrics", timeout=5) as answer:
            return Scrape.of(answer.read().decode())
    except OSError:
        return Scrape([])
