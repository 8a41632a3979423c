"""Settings of the operator: read from environment variables, checked once at the start."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from embertide.spec.naming import USER_ID
from embertide_operator.config.json_settings import (
    parse_peers,
    parse_resources,
    parse_template,
    parse_templates,
)

Number = TypeVar("Number", int, float)

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
GPU_NODE_LABELS = (
    "nvidia.com/gpu.present",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "kubernetes.azure.com/accelerator",
)
PLANNER_RESOURCES: dict[str, Any] = {
    "requests": {"cpu": "100m"},
    "limits": {"cpu": "1", "memory": "2Gi"},
}
"""The planner reads metadata of the inputs only."""
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LONGEST_SECONDS = 86400.0
_LONGEST_RETENTION = 366 * 86400.0
_MOST_JOBS = 10**6
_MOST_REQUESTS = 10**4
_LARGEST_PORT = 65535
_LARGEST_COUNT = 10_000
_LARGEST_USER = 2**31 - 1
_CLASS = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ORDERED = (
    ("stale_seconds", "resync_seconds"),
    ("lease_seconds", "renew_seconds"),
    ("renew_seconds", "retry_seconds"),
)
"""Settings of which the first must be more than the second."""


def _setting(default: Any, parse: Callable[[str], Any] = str) -> Any:
    """A field whose variable is read by ``parse``, a ValueError of which says what is allowed."""
    return field(default=default, metadata={"parse": parse})


def _seconds(text: str) -> float:
    return _number(float, text, 0.001, _LONGEST_SECONDS, "a number of seconds above 0")


def _seconds_or_none(text: str) -> float:
    return _number(float, text, 0.0, _LONGEST_RETENTION, "a number of seconds from 0")


def _long(text: str) -> float:
    return _number(float, text, 1.0, _LONGEST_RETENTION, "a number of seconds above 0")


def _limit(text: str) -> int:
    return _number(int, text, 1, _LARGEST_COUNT, "a number from 1")


def _count(text: str) -> int:
    return _number(int, text, 0, _MOST_JOBS, "a whole number from 0")


def _whole_seconds(text: str) -> int:
    return _number(int, text, 1, int(_LONGEST_SECONDS), "a whole number of seconds above 0")


def _rate(text: str) -> float:
    return _number(float, text, 0.1, _MOST_REQUESTS, "a number from 0.1 to 10000")


def _burst(text: str) -> int:
    return _number(int, text, 1, _MOST_REQUESTS, "a whole number from 1 to 10000")


def _port(text: str) -> int:
    return _number(int, text, 1, _LARGEST_PORT, "a port, 1 to 65535")


def _user(text: str) -> int | None:
    """A user id; "" for none, which leaves the choice to the cluster."""
    allowed = "a user id from 1, or empty"
    return _number(int, text, 1, _LARGEST_USER, allowed) if text else None


def _number(
    kind: Callable[[str], Number], text: str, least: float, most: float, allowed: str
) -> Number:
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(allowed) from None
    if not least <= value <= most:  # so written, it refuses nan as well
        raise ValueError(allowed)
    return value


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text

    return parse


def _namespaces(text: str) -> tuple[str, ...]:
    """Names with commas between them; "" for none."""
    names = tuple(text.split(",")) if text else ()
    if not all(_NAMESPACE.fullmatch(name) for name in names):
        raise ValueError("names of namespaces with commas between them")
    return tuple(dict.fromkeys(names))


def _labels(text: str) -> tuple[str, ...]:
    """Keys of labels with commas between them; "" for none."""
    keys = tuple(text.split(",")) if text else ()
    if not all(_LABEL.fullmatch(key) for key in keys):
        raise ValueError("keys of labels with commas between them")
    return keys


def _storage_class(text: str) -> str:
    """The name of a StorageClass; "" for none."""
    if text and not _SUBDOMAIN.fullmatch(text):
        raise ValueError("the name of a StorageClass, or empty")
    return text


def _pod_groups(text: str) -> str:
    """The API of PodGroups; "" for none."""
    if text not in ("", "volcano", "coscheduling"):
        raise ValueError("volcano, coscheduling or empty")
    return text


def _switch(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _class(text: str) -> str:
    """A class of operators; "" for jobs without one."""
    if text and not _CLASS.fullmatch(text):
        raise ValueError("lower-case letters, digits and '-', at most 63, or empty")
    return text


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of one operator process, which the chart sets from its values.

    Attributes:
        namespaces: those to watch, which must exist; none means all of the cluster.
        image: default image of the workers; ``image_cuda`` with ``device: cuda``.
        pull_policy: of the workers' image.
        worker_user: user and group id of the workers; None leaves it to the cluster, as
            OpenShift wants it.
        pod_template: for the pods of all jobs, merged under each job's own.
        namespace_pod_templates: the same for the jobs of a namespace, by its name.
        planner_resources: of the planner's container.
        scratch_storage_class: of scratch volumes for tensors on disk, for jobs that name none; ""
            for the node's disk.
        gpu_node_labels: keys of the labels that GPU nodes have, from which the planner of a job
            with ``device: cuda`` stays away; none places it like the workers.
        network_policy: whether each job gets a NetworkPolicy.
        http_peers: the NetworkPolicyPeers that it lets reach ``/status`` and ``/metrics`` of
            workers: the operator itself, and what scrapes metrics.
        pod_groups: whose PodGroups the workers of a job are put into: those of ``volcano`` or of
            ``coscheduling``; "" for none.
        group_scheduler: the scheduler of pods in such groups, for jobs that name none; "" for the
            cluster's default.
        backoff_seconds: back-off before the first retry; doubles with each, up to 5 minutes.
        disruption_limit: how many attempts of a job in a row may be disrupted; each ended within
            ten minutes.
        disruption_budget: whether evictions of workers that run are blocked.
        disruption_budget_seconds: for how long in each attempt; 0 for all of it.
        mistake_seconds: how long a mistake that keeps workers from starting (a Secret, key or image
            that does not exist, an object that the API server refuses) may last before the job
            fails.
        resync_seconds: how often all unfinished jobs are reconciled, besides on events, and how
            long a watch lasts before it is made again.
        stale_seconds: with a watch that hears nothing or a pass that does not end for this long,
            ``/healthz`` fails.
        max_running_jobs: how many jobs run at once, the others wait; 0 for any number.
        max_running_jobs_per_namespace: the same for each namespace.
        max_workers_per_job: a job that asks for more workers is rejected; 0 for any number.
        max_running_workers: how many workers all running jobs may have; 0 for any number.
        max_running_workers_per_namespace: the same for each namespace.
        api_qps: requests to the API server a second, on average.
        api_burst: how many of them at once.
        own_namespace: that of the operator; "" for a process that runs outside a cluster.
        own_name: of the operator's Deployment and Lease; with ``own_namespace`` it is the
            :attr:`identity`.
        operator_class: ``spec.operatorClass`` of the jobs that it reconciles.
        claim_seconds: an operator that renews no heartbeat for this long loses its jobs to
            another one that watches them.
        lease_seconds: how long a replica that stopped renewing the Lease still counts as leader;
            not used without an :attr:`identity`.
        renew_seconds: a leader that could not renew for this long ends its process; less than
            ``lease_seconds``.
        retry_seconds: between two attempts to renew the Lease, or to get it.
        outputs_config_map: in ``own_namespace``, in which it keeps when each output was last
            published; "" keeps that in memory only.
        output_retention_seconds: how long an output is remembered after its last job.
        log_level: messages below it are left out.
        log_format: ``text``, or ``json`` for one object a line.
        port: of ``/healthz`` and ``/metrics``.
    """

    namespaces: tuple[str, ...] = _setting((), _namespaces)
    image: str = _setting("")
    image_cuda: str = _setting("")
    pull_policy: str = _setting("IfNotPresent", _one_of("Always", "IfNotPresent", "Never"))
    worker_user: int | None = _setting(USER_ID, _user)
    pod_template: dict[str, Any] = field(default_factory=dict, metadata={"parse": parse_template})
    namespace_pod_templates: dict[str, dict[str, Any]] = field(
        default_factory=dict, metadata={"parse": parse_templates}
    )
    planner_resources: dict[str, Any] = field(
        default_factory=PLANNER_RESOURCES.copy, metadata={"parse": parse_resources}
    )
    scratch_storage_class: str = _setting("", _storage_class)
    gpu_node_labels: tuple[str, ...] = _setting(GPU_NODE_LABELS, _labels)
    network_policy: bool = _setting(False, _switch)
    http_peers: tuple[dict[str, Any], ...] = _setting((), parse_peers)
    pod_groups: str = _setting("", _pod_groups)
    group_scheduler: str = _setting("")
    backoff_seconds: float = _setting(10.0, _seconds)
    disruption_limit: int = _setting(20, _limit)
    disruption_budget: bool = _setting(True, _switch)
    disruption_budget_seconds: float = _setting(0.0, _seconds_or_none)
    mistake_seconds: float = _setting(120.0, _seconds)
    resync_seconds: float = _setting(20.0, _seconds)
    stale_seconds: float = _setting(90.0, _seconds)
    max_running_jobs: int = _setting(50, _count)
    max_running_jobs_per_namespace: int = _setting(0, _count)
    max_workers_per_job: int = _setting(256, _count)
    max_running_workers: int = _setting(1000, _count)
    max_running_workers_per_namespace: int = _setting(0, _count)
    api_qps: float = _setting(50.0, _rate)
    api_burst: int = _setting(100, _burst)
    own_namespace: str = _setting("")
    own_name: str = _setting("")
    operator_class: str = _setting("", _class)
    claim_seconds: float = _setting(90.0, _seconds)
    lease_seconds: int = _setting(15, _whole_seconds)
    renew_seconds: float = _setting(10.0, _seconds)
    retry_seconds: float = _setting(2.0, _seconds)
    outputs_config_map: str = _setting("")
    output_retention_seconds: float = _setting(14 * 86400.0, _long)
    log_level: str = _setting("info", _one_of(*LOG_LEVELS))
    log_format: str = _setting("text", _one_of(*LOG_FORMATS))
    port: int = _setting(8080, _port)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Settings from ``EMBERTIDE_<FIELD>``, for every field.

        Raises:
            ValueError: a variable has a value that is not allowed; the message names it.
        """
        given: dict[str, Any] = {}
        for item in fields(cls):
            name = f"EMBERTIDE_{item.name.upper()}"
            if name not in environment:
                continue
            try:
                given[item.name] = item.metadata["parse"](environment[name])
            except ValueError as error:
                raise ValueError(f"{name} is {environment[name]!r}; must be {error}") from None
        settings = cls(**given)
        for more, less in _ORDERED:
            longer, shorter = getattr(settings, more), getattr(settings, less)
            if longer <= shorter:
                raise ValueError(
                    f"EMBERTIDE_{more.upper()} ({longer:g}) must be more than "
                    f"EMBERTIDE_{less.upper()} ({shorter:g})"
                )
        return settings

    @property
    def most_workers(self) -> tuple[int, str]:
        """(the most workers that a job can ever have, the chart's value that says so).

        The number is 0 where there is no limit.
        """
        limits = (
            (self.max_workers_per_job, "maxWorkersPerJob"),
            (self.max_running_workers, "maxRunningWorkers"),
            (self.max_running_workers_per_namespace, "maxRunningWorkersPerNamespace"),
        )
        return min((limit for limit in limits if limit[0]), default=(0, ""))

    @property
    def identity(self) -> str:
        """What jobs call this operator, ``namespace/name``; "" outside a cluster.

        All replicas of a Deployment are one operator.
        """
        place = (self.own_namespace, self.own_name)
        return "/".join(place) if all(place) else ""
