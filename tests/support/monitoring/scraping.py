"""Monitors as scrape configuration, by the translation that prometheus-operator makes.

So a test scrapes exactly what the chart's PodMonitors and ServiceMonitors select: the same pods,
the same port, the same labels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class _Kind:
    """How one kind of monitor finds its targets, in Prometheus' words."""

    role: str
    labels: str
    port: str
    endpoints: str


_POD = "__meta_kubernetes_pod"
_KINDS = {
    "PodMonitor": _Kind("pod", _POD, f"{_POD}_container_port_name", "podMetricsEndpoints"),
    "ServiceMonitor": _Kind(
        "endpointslice",
        "__meta_kubernetes_service",
        "__meta_kubernetes_endpointslice_port_name",
        "endpoints",
    ),
}


def scrape_configs(monitors: list[Object], kubeconfig: Path) -> list[Object]:
    """``scrape_configs`` for every endpoint of the monitors; a kubeconfig leads to the pods.

    Raises:
        KeyError: a monitor has a field without which it selects nothing, or another kind.
    """
    return [
        _scrape_config(monitor, endpoint, number, kubeconfig)
        for monitor in monitors
        for number, endpoint in enumerate(
            monitor["spec"][_KINDS[monitor["kind"]].endpoints],
        )
    ]


def _scrape_config(monitor: Object, endpoint: Object, number: int, kubeconfig: Path) -> Object:
    kind, spec = _KINDS[monitor["kind"]], monitor["spec"]
    place = f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"
    discovery: Object = {"role": kind.role, "kubeconfig_file": str(kubeconfig)}
    if not spec["namespaceSelector"].get("any"):
        discovery["namespaces"] = {"names": spec["namespaceSelector"]["matchNames"]}
    return {
        "job_name": f"{monitor['kind']}/{place}/{number}",
        "metrics_path": endpoint["path"],
        "honor_labels": endpoint.get("honorLabels", False),
        "kubernetes_sd_configs": [discovery],
        "relabel_configs": [
            *_selected(spec["selector"]["matchLabels"], kind),
            {"action": "keep", "source_labels": [kind.port], "regex": endpoint["port"]},
            # A pod that has ended answers no more.
            {"action": "drop", "source_labels": [f"{_POD}_phase"], "regex": "Failed|Succeeded"},
            _copied("__meta_kubernetes_namespace", "namespace"),
            _copied(f"{_POD}_container_name", "container"),
            _copied(f"{_POD}_name", "pod"),
            {"target_label": "job", "replacement": place},
            {"target_label": "endpoint", "replacement": endpoint["port"]},
            *map(_in_snake_case, endpoint.get("relabelings", [])),
        ],
        "metric_relabel_configs": [*map(_in_snake_case, endpoint.get("metricRelabelings", []))],
    }


def _selected(wanted: dict[str, str], kind: _Kind) -> list[Object]:
    return [
        {
            "action": "keep",
            "source_labels": [f"{kind.labels}_label_{re.sub(r'[^a-zA-Z0-9]', '_', name)}"],
            "regex": value,
        }
        for name, value in wanted.items()
    ]


def _copied(source: str, target: str) -> Object:
    return {"action": "replace", "source_labels": [source], "target_label": target}


def _in_snake_case(rule: Object) -> Object:
    """A relabelling of the custom resource in the configuration file's spelling."""
    words = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {words.get(key, key): value for key, value in rule.items()}
