"""Faults at random times: the operator, the API server, S3, nodes' parts and pods are killed."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from urllib3.exceptions import HTTPError

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import NAMESPACE
from tests.support.cluster.jobs import Jobs

_BETWEEN_SECONDS = (5.0, 20.0)
_AWAY_SECONDS = (1.0, 6.0)


@dataclass
class Faults:
    """One fault every now and then; what it breaks for a while is mended before the next.

    Attributes:
        jobs: whose pods are hit.
        say: told of each.
        done: how many of each kind there were.
    """

    cluster: KubernetesCluster
    jobs: Jobs
    random: random.Random
    say: Callable[[str], None]
    done: Counter[str] = field(default_factory=Counter)
    _due: float = field(default_factory=time.monotonic)

    def maybe(self) -> None:
        """A fault, if it is time for one."""
        if time.monotonic() < self._due:
            return
        fault = self.random.choice(
            [
                self.operator_killed,
                self.operator_pod_deleted,
                self.api_server_away,
                self.controllers_away,
                self.s3_away,
                self.worker_killed,
                self.worker_killed,
                self.pod_deleted,
                self.pod_deleted,
                self.stateful_set_deleted,
            ]
        )
        try:
            what = fault()
        except (AssertionError, HTTPError) as error:  # what it was to hit has ended meanwhile
            what = ""
            self.say(f"fault {fault.__name__} came too late: {str(error)[:120]}")
        if what:
            self.done[fault.__name__] += 1
            self.say(f"fault {fault.__name__}: {what}")
        self._due = time.monotonic() + self.random.uniform(*_BETWEEN_SECONDS)

    def operator_killed(self) -> str:
        """The process of an operator, which may be the leader, is gone without a word."""
        pods = self._operators()
        pod = self.random.choice(pods)
        self.cluster.kill_in_pod(NAMESPACE, pod, "embertide_operator")
        return pod

    def operator_pod_deleted(self) -> str:
        """As a drain does it."""
        pod = self.random.choice(self._operators())
        self.cluster.kubectl("-n", NAMESPACE, "delete", "pod", pod, "--wait=false")
        return pod

    def api_server_away(self) -> str:
        """Every connection to it breaks, and new ones are refused for a while."""
        return self._away("apiserver")

    def controllers_away(self) -> str:
        """No StatefulSet gets pods for a while."""
        return self._away("controller-manager")

    def s3_away(self) -> str:
        """The store answers nobody for a while."""
        return self._away("s3")

    def worker_killed(self) -> str:
        """A process of a job's pod is gone."""
        pod = self._pod()
        if pod:
            self.cluster.kill_in_pod(self.jobs.namespace, pod, "python")
        return pod

    def pod_deleted(self) -> str:
        """A job's pod is deleted by hand."""
        pod = self._pod()
        if pod:
            self.jobs.kubectl("delete", "pod", pod, "--wait=false")
        return pod

    def stateful_set_deleted(self) -> str:
        """The workers of a job are deleted by hand."""
        path = f"/apis/apps/v1/namespaces/{self.jobs.namespace}/statefulsets"
        found: list[str] = [item["metadata"]["name"] for item in self.cluster.read(path)["items"]]
        if not found:
            return ""
        name = self.random.choice(found)
        self.jobs.kubectl("delete", "statefulset", name, "--wait=false")
        return name

    def _away(self, component: str) -> str:
        seconds = self.random.uniform(*_AWAY_SECONDS)
        self.cluster.node.order("stop", component)
        time.sleep(seconds)
        self.cluster.node.order("start", component)
        return f"{seconds:.1f} s"

    def _pod(self) -> str:
        """A pod of a job that runs; "" where there is none."""
        names = [
            pod["metadata"]["name"]
            for pod in self.jobs.pods()
            if pod["status"].get("phase") == "Running"
        ]
        return self.random.choice(names) if names else ""

    def _operators(self) -> list[str]:
        label = "app.kubernetes.io/component=operator"
        pods = self.cluster.get("-n", NAMESPACE, "pods", "-l", label)["items"]
        names = [
            pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")
        ]
        assert names, "there is no operator's pod"
        return names
