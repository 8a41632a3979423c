"""PodMonitors as scrape configuration, by the translation that prometheus-operator makes.

So a test scrapes exactly what the chart's monitors select: same pods, same port, same labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

Object = dict[str, Any]


def scrape_configs(monitors: list[Object], kubeconfig: Path) -> list[Object]:
    """``scrape_configs`` for the endpoints of PodMonitors; pods are found with a kubeconfig."""
    return [
        _scrape_config(monitor, endpoint, number, kubeconfig)
        for monitor in monitors
        for number, endpoint in enumerate(monitor["spec"]["podMetricsEndpoints"])
    ]


def _scrape_config(monitor: Object, endpoint: Object, number: int, kubeconfig: Path) -> Object:
    meta, spec = monitor["metadata"], monitor["spec"]
    discovery: Object = {"role": "pod", "kubeconfig_file": str(kubeconfig)}
    namespaces = _namespaces(meta.get("namespace", "default"), spec.get("namespaceSelector", {}))
    if namespaces is not None:
        discovery["namespaces"] = {"names": namespaces}
    return {
        "job_name": f"podMonitor/{meta.get('namespace', 'default')}/{meta['name']}/{number}",
        "metrics_path": endpoint.get("path", "/metrics"),
        "honor_labels": endpoint.get("honorLabels", False),
        "kubernetes_sd_configs": [discovery],
        "relabel_configs": [
            *_selected(spec["selector"]),
            *_port(endpoint),
            # A pod that has ended answers no more.
            _rule("drop", ["__meta_kubernetes_pod_phase"], regex="(Failed|Succeeded)"),
            _rule("replace", ["__meta_kubernetes_namespace"], target_label="namespace"),
            _rule("replace", ["__meta_kubernetes_pod_container_name"], target_label="container"),
            _rule("replace", ["__meta_kubernetes_pod_name"], target_label="pod"),
            *_copied(spec.get("podTargetLabels", [])),
            {"target_label": "job", "replacement": f"{meta.get('namespace')}/{meta['name']}"},
            *_job_label(spec.get("jobLabel")),
            {"target_label": "endpoint", "replacement": str(endpoint.get("port", ""))},
            *map(_snake_case, endpoint.get("relabelings", [])),
        ],
        "metric_relabel_configs": [*map(_snake_case, endpoint.get("metricRelabelings", []))],
    }


def _namespaces(own: str, selector: Object) -> list[str] | None:
    if selector.get("any"):
        return None
    return list(selector.get("matchNames") or [own])


def _selected(selector: Object) -> list[Object]:
    rules = [
        _rule("keep", [_label(name), _label(name, "labelpresent")], regex=f"({value});true")
        for name, value in selector.get("matchLabels", {}).items()
    ]
    for item in selector.get("matchExpressions", []):
        there, value = _label(item["key"], "labelpresent"), _label(item["key"])
        values = f"({'|'.join(item.get('values', []))});true"
        rules.append(
            {
                "Exists": lambda there=there: _rule("keep", [there], regex="true"),
                "DoesNotExist": lambda there=there: _rule("drop", [there], regex="true"),
                "In": lambda a=value, b=there, c=values: _rule("keep", [a, b], regex=c),
                "NotIn": lambda a=value, b=there, c=values: _rule("drop", [a, b], regex=c),
            }[item["operator"]]()
        )
    return rules


def _port(endpoint: Object) -> list[Object]:
    if "port" in endpoint:
        name = endpoint["port"]
        return [_rule("keep", ["__meta_kubernetes_pod_container_port_name"], regex=name)]
    number = str(endpoint["portNumber"])
    return [_rule("keep", ["__meta_kubernetes_pod_container_port_number"], regex=number)]


def _copied(labels: list[str]) -> list[Object]:
    return [
        _rule("replace", [_label(name)], target_label=_plain(name), regex="(.+)") for name in labels
    ]


def _job_label(name: str | None) -> list[Object]:
    if name is None:
        return []
    return [_rule("replace", [_label(name)], target_label="job", regex="(.+)")]


def _rule(action: str, sources: list[str], **fields: str) -> Object:
    return {"action": action, "source_labels": sources, **fields}


def _label(name: str, kind: str = "label") -> str:
    return f"__meta_kubernetes_pod_{kind}_{_plain(name)}"


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _snake_case(rule: Object) -> Object:
    """A relabelling of the custom resource in the configuration file's spelling."""
    words = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {words.get(key, key): value for key, value in rule.items()}
