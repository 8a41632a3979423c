"""Who may reach the workers of a job: a NetworkPolicy, as far as the cluster's network has them.

Workers trust each other: what they exchange is neither signed nor encrypted. So only workers of
the same job reach every port of them; ``/status`` and ``/metrics`` are for those whom the settings
name, the operator among them. Egress stays open, since a store may be anywhere. Probes of the
kubelet are subject to no policy.
"""

from __future__ import annotations

from embertide.spec import naming
from embertide_operator.api.routes import Object
from embertide_operator.config.settings import Settings


def policy_spec(uid: str, settings: Settings) -> Object:
    """The spec of the NetworkPolicy of the job with this UID, for all its pods."""
    own = {naming.LABEL_JOB_UID: uid}
    workers = {"podSelector": {"matchLabels": {**own, naming.LABEL_ROLE: naming.ROLE_WORKER}}}
    ingress: list[Object] = [{"from": [workers]}]
    if settings.http_peers:
        port = {"protocol": "TCP", "port": naming.HTTP_PORT}
        ingress.append({"from": list(settings.http_peers), "ports": [port]})
    return {"podSelector": {"matchLabels": own}, "policyTypes": ["Ingress"], "ingress": ingress}
