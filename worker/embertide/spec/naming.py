"""Names shared by the operator and the pods: labels, ports, paths, environment variables.

Objects of a job have the job's name. The StatefulSet controller puts the name with a suffix of 11
characters into a pod label, which can hold 63, so a job's name has at most 52 characters.
"""

from __future__ import annotations

from datetime import UTC, datetime

GROUP = "embertide.dev"
API_VERSION_NAME = "v1alpha1"
PLURAL = "embeddingjobs"
SINGULAR = "embeddingjob"
SHORT_NAME = "ej"

FIELD_MANAGER = "embertide-operator"
MANAGED_BY = f"{GROUP}/operator"
"""The value of ``spec.managedBy`` for the operator itself, as if the field were not set."""

LABEL_JOB = f"{GROUP}/job"
"""On every object of a job: the job's name."""
LABEL_JOB_UID = f"{GROUP}/job-uid"
"""On every object of a job: the job's UID, which an earlier job of the same name does not share."""
LABEL_ROLE = f"{GROUP}/role"
"""On pods: ``worker``, ``planner``, ``inputs`` for one that looks whether inputs are ready, or
``push`` for one that pushes a version into an index."""
LABEL_ATTEMPT = f"{GROUP}/attempt"
"""On pods and the StatefulSet: the number of their attempt, from 1."""
LABEL_SCHEDULE = f"{GROUP}/schedule"
"""On a job that ``embertide submit`` created: the schedule, which is the name in its template."""
SCHEDULED_TIME = f"{GROUP}/scheduled-time"
"""Annotation of the same jobs: the time that they were scheduled for, RFC 3339 in UTC."""
PUSH_REQUESTED = f"{GROUP}/push-requested"
"""Annotation of a job with ``spec.push``: with each new value, such as the time, the version that
is current then is pushed again."""
LABEL_PUSH = f"{GROUP}/push"
"""On a pod that pushes: a hash of what it was asked for."""
ROLE_WORKER, ROLE_PLANNER, ROLE_LOOKER, ROLE_PUSHER = "worker", "planner", "inputs", "push"

HTTP_PORT = 8080
RENDEZVOUS_PORT = 29500

JOB_KEY = "job.json"
JOB_FOLDER = "/etc/embertide"
SCRATCH_FOLDER = "/scratch"
CREDENTIALS_FOLDER = "/etc/embertide-credentials"
"""With the keys of ``spec.storage.credentialsSecret``, a file each."""
STORES_FOLDER = "/etc/embertide-stores"
"""With a folder for each Secret that ``spec.storage.stores`` names, and its keys, a file each."""
TERMINATION_LOG = "/dev/termination-log"
CONTAINER = "worker"
USER_ID = 65532

ENV_UID = "EMBERTIDE_JOB_UID"
ENV_ATTEMPT = "EMBERTIDE_ATTEMPT"
ENV_GRID = "EMBERTIDE_GRID"
ENV_VERSION = "EMBERTIDE_VERSION"
ENV_EARLIER = "EMBERTIDE_EARLIER_VERSIONS"
ENV_TABLES = "EMBERTIDE_TABLES"
ENV_RENDEZVOUS = "EMBERTIDE_RENDEZVOUS"
ENV_RANK = "EMBERTIDE_RANK"
ENV_MEMORY_LIMIT = "EMBERTIDE_MEMORY_LIMIT"
ENV_THREADS = "EMBERTIDE_THREADS"
ENV_JOIN_SECONDS = "EMBERTIDE_JOIN_SECONDS"
"""How long a worker waits for the others to start."""
ENV_IN_POD = "EMBERTIDE_IN_POD"
"""Set in a job's containers, where messages advise on Secrets and service accounts."""
ENV_OPERATOR_VERSION = "EMBERTIDE_OPERATOR_VERSION"
"""The operator's release, such as 1.4.0, for messages where it differs from the image's."""
ENV_CREDENTIALS_FOLDER = "EMBERTIDE_CREDENTIALS_FOLDER"
ENV_STORES_FOLDER = "EMBERTIDE_STORES_FOLDER"


MAX_NAME = 52
MAX_SCHEDULE_NAME = MAX_NAME - len("-20261122-0300")
"""The longest name of a schedule: the name of each of its jobs adds the minute."""


def scheduled_name(schedule: str, time: datetime) -> str:
    """The name of a schedule's job for a minute, such as ``products-20261122-0300``.

    In UTC, since a minute of a zone with summer time can come twice in one night.
    """
    return f"{schedule}-{time.astimezone(UTC):%Y%m%d-%H%M}"


def planner_name(job: str) -> str:
    """The name of the pod that plans a job's grid and memory."""
    return f"{job}-plan"


def looker_name(job: str) -> str:
    """The name of the pod that looks whether a job's inputs are ready."""
    return f"{job}-inputs"


def pusher_name(job: str) -> str:
    """The name of the pod that pushes a job's version into an index."""
    return f"{job}-push"


def worker_name(job: str, rank: int) -> str:
    """The name of a worker's pod; the StatefulSet's ordinal is the rank."""
    return f"{job}-{rank}"


def rendezvous(job: str) -> str:
    """The rendezvous endpoint (host:port): rank 0, resolved through the headless Service."""
    return f"{worker_name(job, 0)}.{job}:{RENDEZVOUS_PORT}"
