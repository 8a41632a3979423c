"""``status`` of an EmbeddingJob: what the operator writes and people read.

Built and read by the operator only. Everything is optional and unknown fields are ignored, so
that an operator can read what an earlier or later one wrote. Times are RFC 3339 in UTC.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Phase = Literal[
    "Pending",
    "Planning",
    "Starting",
    "Running",
    "Restarting",
    "Suspended",
    "Succeeded",
    "Failed",
]
ConditionType = Literal[
    "Accepted", "Suspended", "WorkersReady", "Progressing", "Published", "Complete", "Failed"
]

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class StatusModel(BaseModel):
    """Base of the status objects: camelCase outside, frozen, unknown fields are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )

    def to_object(self) -> dict[str, Any]:
        """Plain JSON as the API speaks it; what is not known is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Condition(StatusModel):
    """One aspect of the job's state, as in every Kubernetes object."""

    type: str = Field(
        max_length=316,
        description="Accepted, Suspended, WorkersReady, Progressing, Published, Complete or "
        "Failed.",
    )
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: str = Field(
        min_length=1,
        max_length=1024,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Why, in one word for programs.",
    )
    message: str = Field(max_length=32768, description="Why, in a sentence for people.")
    last_transition_time: Time = Field(description="When the condition last changed its status.")
    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation of the job that the condition is about."
    )


class PlanStatus(StatusModel):
    """How the job is spread over workers."""

    grid: str | None = Field(
        default=None, description="Graph partitions times feature partitions, such as 2x2."
    )
    replicas: int | None = Field(default=None, description="Number of workers.")
    memory_per_worker_bytes: int | None = Field(
        default=None, description="Memory that a worker is planned to take at most, in bytes."
    )
    bytes_exchanged: int | None = Field(
        default=None, description="What all workers are planned to send each other, in bytes."
    )


class WorkersStatus(StatusModel):
    """The pods of the current attempt."""

    desired: int | None = Field(default=None, description="Number of workers wanted.")
    ready: int | None = Field(default=None, description="Number of workers that are ready.")
    failed: int | None = Field(default=None, description="Number of workers that have failed.")
    summary: str | None = Field(
        default=None, description="Ready and wanted workers for the eye, such as 3/4."
    )


class ProgressStatus(StatusModel):
    """How far the current attempt is."""

    stage: str | None = Field(
        default=None, description="What the workers do now, such as ingest, infer or publish."
    )
    layer: int | None = Field(
        default=None, description="The model's layer that is computed now, from 1."
    )
    layers: int | None = Field(default=None, description="Number of the model's layers.")
    percent: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Part of the whole attempt that is done; it does not go back.",
    )
    done: str | None = Field(default=None, description="percent for the eye, such as 43%.")
    eta_seconds: int | None = Field(
        default=None, description="Estimated time until the version is published, in seconds."
    )
    edges_per_second: int | None = Field(
        default=None, description="Edges that all workers read or aggregate in a second."
    )
    last_update_time: Time | None = Field(
        default=None, description="When the workers last moved forward."
    )


class OutputStatus(StatusModel):
    """The version that this job published."""

    version: str | None = Field(default=None, description="Name of the version.")
    uri: str | None = Field(default=None, description="Where the version's objects lie.")
    rows: int | None = Field(default=None, description="Number of embeddings.")
    dim: int | None = Field(default=None, description="Numbers in each embedding.")
    manifest_digest: str | None = Field(
        default=None, description="SHA-256 of the version's manifest."
    )


class FailureStatus(StatusModel):
    """Why the last failed attempt failed."""

    worker: str | None = Field(
        default=None, description="Name of the pod that failed first, where one did."
    )
    reason: str | None = Field(
        default=None, description="Kind of failure in one word, such as Input or OutOfMemory."
    )
    exit_code: int | None = Field(default=None, description="Exit code of the container.")
    message: str | None = Field(default=None, description="What happened, for people.")


class JobStatus(StatusModel):
    """How the job is doing; written by the operator."""

    observed_generation: int | None = Field(
        default=None, description="The generation of the job that this status is about."
    )
    phase: Phase | None = Field(
        default=None,
        description="Where the job is: Pending, Planning, Starting, Running, Restarting, "
        "Suspended, Succeeded or Failed. conditions say more.",
    )
    attempt: int = Field(default=0, description="Number of the current attempt, from 1.")
    failures: int = Field(
        default=0, description="Number of failed attempts that count against backoffLimit."
    )
    start_time: Time | None = Field(
        default=None,
        description="When the job was started or resumed; activeDeadlineSeconds counts from here.",
    )
    attempt_start_time: Time | None = Field(
        default=None, description="When the current attempt was started."
    )
    retry_time: Time | None = Field(
        default=None, description="When the next attempt may start, after a failed one."
    )
    completion_time: Time | None = Field(
        default=None, description="When the job succeeded or failed for good."
    )
    versions: list[str] = Field(
        default_factory=list,
        description="Version names that the attempts wrote or write under, one for each attempt, "
        "oldest first.",
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=32,
        description="The aspects of the job's state: Accepted, Suspended, WorkersReady, "
        "Progressing, Published, Complete, Failed.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    plan: PlanStatus | None = Field(default=None, description="How the job is spread over workers.")
    workers: WorkersStatus | None = Field(
        default=None, description="The pods of the current attempt."
    )
    progress: ProgressStatus | None = Field(
        default=None, description="How far the current attempt is."
    )
    output: OutputStatus | None = Field(
        default=None, description="The version that this job published."
    )
    last_failure: FailureStatus | None = Field(
        default=None, description="Why the last failed attempt failed."
    )
