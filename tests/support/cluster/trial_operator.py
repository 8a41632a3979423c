"""An operator of its own for a trial: few workers at once, little patience, and its own log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import CHART, options, release_values

RELEASE = "trial"
"""Also the operator's class."""
AT_ONCE = 8
"""Workers; a hundred small ones at once fill the memory of a machine."""
_MISTAKE_SECONDS = 10
_LOG_PROBLEMS = re.compile(r"internal error|Traceback|\b(ERROR|CRITICAL)\b")


@contextmanager
def trial_operator(cluster: KubernetesCluster, *watched: str) -> Iterator[list[str]]:
    """A release with a class of its own; yields the list of what it does wrong, full at the end."""
    namespace, problems = cluster.namespace(RELEASE), list[str]()
    values = release_values(cluster) | {
        "operator": {"class": RELEASE},
        "watchNamespaces": list(watched),
        "crds": {"install": False},
        "mistakeSeconds": _MISTAKE_SECONDS,
        "maxWorkersPerJob": AT_ONCE,
        "maxRunningWorkers": AT_ONCE,
    }
    place = ("--namespace", namespace)
    cluster.helm("install", RELEASE, str(CHART), *place, *options(values), "--wait")
    try:
        yield problems
        problems += _problems_of(cluster, namespace)
    finally:
        cluster.helm("uninstall", RELEASE, *place)
        for name in (namespace, *watched):
            cluster.discard(name)


def _problems_of(cluster: KubernetesCluster, namespace: str) -> list[str]:
    """Restarts of the operator, and lines of its log that only a fault of its own writes."""
    (pod,) = cluster.get("-n", namespace, "pods", "-l", "app.kubernetes.io/component=operator")[
        "items"
    ]
    problems = [
        f"the operator was restarted {status['restartCount']} times"
        for status in pod["status"]["containerStatuses"]
        if status["restartCount"]
    ]
    log = cluster.kubectl("-n", namespace, "logs", pod["metadata"]["name"]).splitlines()
    return problems + [f"operator: {line}" for line in log if _LOG_PROBLEMS.search(line)]
