"""The log of a job: what a failed container left in the status, and what running pods say."""

from __future__ import annotations

from dataclasses import dataclass

from embertide.errors import ClusterError
from embertide.submit.cluster import Cluster, NotThere, Object


@dataclass(frozen=True)
class PodLog:
    """The last lines of a pod's log.

    Attributes:
        pod: its name, or that of the worker where the status does not name the pod.
        state: what the pod does, or how it failed.
        lines: without line ends.
    """

    pod: str
    state: str
    lines: list[str]

    @property
    def title(self) -> str:
        """The heading over the lines, as ``tail`` writes it for several files."""
        return f"==> {self.pod}: {self.state} <=="


def read_logs(cluster: Cluster, job: str, tail: int) -> tuple[str, list[PodLog]]:
    """(the job's phase, logs): of the newest failure, then of the pods that there are, by name.

    Args:
        tail: how many lines of each pod.

    Raises:
        ClusterError: there is no such job, or a log cannot be read.
    """
    found = cluster.get(job)
    if found is None:
        raise ClusterError(f"there is no EmbeddingJob {job} in namespace {cluster.namespace}")
    status = found.get("status") or {}
    live = [log for pod in cluster.pods(job) if (log := _log_of(cluster, pod, tail)) is not None]
    return str(status.get("phase") or "Pending"), [*_kept(status, tail), *live]


def _kept(status: Object, tail: int) -> list[PodLog]:
    """What the status keeps of the newest failure; a deadline, which names no worker, keeps the
    log of worker 0."""
    failure, log = status.get("lastFailure") or {}, status.get("failureLog")
    if not log:
        return []
    state = f"failed: {failure.get('reason', '')}"
    return [PodLog(failure.get("worker") or "worker 0", state, log.splitlines()[-tail:])]


def _log_of(cluster: Cluster, pod: Object, tail: int) -> PodLog | None:
    """The log of a pod; None where its container has not started, or the pod is gone by now."""
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    states = [item.get("state") or {} for item in status.get("containerStatuses") or []]
    if not any("running" in state or "terminated" in state for state in states):
        return None
    try:
        lines = cluster.pod_log(name, tail).splitlines()
    except NotThere:
        return None
    return PodLog(name, str(status.get("phase") or "Unknown"), lines)
