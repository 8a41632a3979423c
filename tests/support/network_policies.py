"""Which pod reaches which port of which pod, as Kubernetes' documentation defines NetworkPolicies.

A network that enforces policies is no part of the test cluster, so what a policy means is worked
out from the manifest. Ingress only; peers are selectors of pods and namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class PodAt:
    """A pod as policies see it; a namespace has its name as a label, as in every cluster."""

    namespace: str
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def namespace_labels(self) -> dict[str, str]:
        """The labels of its namespace."""
        return {"kubernetes.io/metadata.name": self.namespace}


def allows(policies: Iterable[Object], source: PodAt, target: PodAt, port: int) -> bool:
    """Whether a TCP connection gets through: no policy selects the target, or one allows it."""
    chosen = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == target.namespace
        and "Ingress" in policy["spec"]["policyTypes"]
        and matches(policy["spec"]["podSelector"], target.labels)
    ]
    return not chosen or any(
        _rule_allows(rule, policy["metadata"]["namespace"], source, port)
        for policy in chosen
        for rule in policy["spec"].get("ingress", ())
    )


def _rule_allows(rule: Object, namespace: str, source: PodAt, port: int) -> bool:
    """Without ports all, without peers everyone."""
    ports, peers = rule.get("ports"), rule.get("from")
    port_fits = not ports or any(item["port"] == port for item in ports)
    return port_fits and (not peers or any(_is_peer(peer, namespace, source) for peer in peers))


def _is_peer(peer: Object, namespace: str, source: PodAt) -> bool:
    """A peer without a selector of namespaces means pods of the policy's own namespace."""
    if "namespaceSelector" in peer:
        inside = matches(peer["namespaceSelector"], source.namespace_labels)
    else:
        inside = source.namespace == namespace
    return inside and matches(peer.get("podSelector", {}), source.labels)


def matches(selector: Object, labels: dict[str, str]) -> bool:
    """Whether a label selector chooses something with these labels; an empty one chooses all."""
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items() and all(
        _holds(expression, labels) for expression in selector.get("matchExpressions", ())
    )


def _holds(expression: Object, labels: dict[str, str]) -> bool:
    key, values = expression["key"], expression.get("values", ())
    found = {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }
    return found[expression["operator"]]
