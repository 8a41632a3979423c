"""Create the job of a firing once, as its schedule's policy says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from embertide.errors import ClusterError, JobFailed
from embertide.spec import naming
from embertide.spec.manifest import EmbeddingJob
from embertide.submit.cluster import Cluster, NameTaken
from embertide.submit.firing import Firing
from embertide.submit.policy import Policy, SubmittedJob, decide, overtaken_by
from embertide.submit.template import to_object


@dataclass(frozen=True)
class Outcome:
    """What became of a firing.

    Attributes:
        event: ``created``; ``exists``: an earlier pod of the same firing created it; ``skipped``.
        name: the firing's job, which a skipped firing does not have.
        message: a sentence for people.
    """

    event: Literal["created", "exists", "skipped"]
    name: str
    namespace: str
    message: str

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def create(cluster: Cluster, job: EmbeddingJob, firing: Firing, policy: Policy) -> Outcome:
    """Create the firing's job, unless it exists or the policy says otherwise.

    The name is the firing's, so of two pods that do this at once only one creates it.

    A back-fill is not subject to the policy: skipping it would leave the day undone without an
    error.

    Raises:
        ClusterError: the API refuses, or the name belongs to a job of another schedule.
        ManifestError: the API server finds the job invalid.
        JobFailed: a back-fill whose older data would become current after that of a later time.
    """
    name = job.metadata.name
    if (found := cluster.get(name)) is not None:
        return _exists(cluster, found, job)
    if firing.backfill:
        _refuse_older(cluster, job, firing)
        policy = Policy.ALLOW
    listed = _listed(cluster, job.metadata.labels[naming.LABEL_SCHEDULE], policy)
    if name in listed:  # created since we asked for it
        return _exists(cluster, listed[name], job)
    others = [SubmittedJob.of(other) for other in listed.values()]
    decision = decide(policy, firing.time, others)
    if decision.skip:
        return Outcome("skipped", name, cluster.namespace, f"{name} skipped: {decision.skip}")
    for other in decision.replace:
        cluster.delete(other.name, other.uid)
    try:
        cluster.create(to_object(job, cluster.namespace))
    except NameTaken:
        found = cluster.get(name)
        if found is None:
            raise ClusterError(f"{name} was deleted as it was created; submit again") from None
        return _exists(cluster, found, job)
    replaced = "".join(f", which replaces {other.name}" for other in decision.replace)
    return Outcome("created", name, cluster.namespace, f"{name} created{replaced}")


def _refuse_older(cluster: Cluster, job: EmbeddingJob, firing: Firing) -> None:
    jobs = cluster.jobs_of(job.metadata.labels[naming.LABEL_SCHEDULE])
    output = job.spec.published_uri
    later = overtaken_by(firing.time, output, [SubmittedJob.of(other) for other in jobs])
    if later is not None:
        raise JobFailed(
            f"{job.metadata.name} was not created: {later.name} ({later.phase}) publishes data of a"
            f" later time to the same output, {output}, and older data would become current after"
            " it. Give output.uri a placeholder such as {date}, or delete that EmbeddingJob first"
            " if the older data is to be current"
        )


def _listed(cluster: Cluster, schedule: str, policy: Policy) -> dict[str, dict[str, Any]]:
    """The schedule's jobs by name, as far as the policy looks at them."""
    if policy is Policy.ALLOW:  # needs no right to list
        return {}
    return {found["metadata"]["name"]: found for found in cluster.jobs_of(schedule)}


def _exists(cluster: Cluster, found: dict[str, Any], job: EmbeddingJob) -> Outcome:
    there, schedule = SubmittedJob.of(found), job.metadata.labels[naming.LABEL_SCHEDULE]
    if there.schedule != schedule:
        owner = f"schedule {there.schedule!r}" if there.schedule else "no schedule"
        raise ClusterError(
            f"EmbeddingJob {there.name} exists in namespace {cluster.namespace} and belongs to "
            f"{owner}, not to {schedule!r}; give the template another name"
        )
    message = f"{there.name} exists ({there.phase}): this firing was submitted before"
    return Outcome("exists", there.name, cluster.namespace, message)
