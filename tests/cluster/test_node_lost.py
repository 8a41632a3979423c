"""A node that loses power in the middle of a job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.jobs import Inputs, Jobs, workers

pytestmark = pytest.mark.cluster

# Apart where there are two nodes; leave a lost one after five seconds, not a minute.
_APART = {
    "spec": {
        "terminationGracePeriodSeconds": 5,
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"embertide.dev/job": "torn"}},
                        },
                    }
                ]
            }
        },
        "tolerations": [
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 5,
            }
        ],
    }
}


@pytest.fixture
def second_node(cluster: KubernetesCluster) -> Iterator[None]:
    cluster.start_second_node()
    yield
    cluster.kill_second_node()
    cluster.kubectl("delete", "node", "node-2", "--ignore-not-found")


def test_a_job_goes_on_with_the_nodes_that_are_left(
    big: Inputs, jobs: Jobs, second_node: None
) -> None:
    output = f"{jobs.root}/out"
    jobs.apply(big.job("torn", output, workers=workers(2, 1, podTemplate=_APART)))
    with jobs.held("torn", 1, "ingest"):
        places = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in jobs.pods()}
        assert sorted(places.values()) == ["node-1", "node-2"]
        jobs.cluster.kill_second_node()
    jobs.kubectl("wait", "--for=condition=Ready=Unknown", "node/node-2", "--timeout=60s")
    status = jobs.complete("torn", 400)
    assert status["attempt"] == 2
    # Its peer notices where it was sending; where it was waiting, the node is missed first.
    told = status["lastFailure"]
    reason, failures, words = {
        "node-1": ("WorkerFailed", 1, "lost the "),
        "node-2": ("WorkerDisrupted", 0, "was disrupted"),
    }[places[told["worker"]]]
    assert (told["reason"], status["failures"]) == (reason, failures)
    assert words in told["message"]
    big.check(output)
    assert big.leftovers(output) == []
