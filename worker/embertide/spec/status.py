"""``status`` of an EmbeddingJob: what the operator writes and people read.

Written and read by the operator only. Every field is optional and unknown fields are ignored, so
that an operator can read the status of an earlier or later release. Times are RFC 3339 in UTC.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from embertide.spec.run_status import MAX_ENTRIES, RunStatus, StatusModel, TypeOutput

Phase = Literal[
    "Pending",
    "Waiting",
    "Planning",
    "Starting",
    "Running",
    "Restarting",
    "Suspended",
    "Succeeded",
    "Failed",
]
ConditionType = Literal[
    "Accepted",
    "Suspended",
    "InputsReady",
    "WorkersReady",
    "Progressing",
    "Published",
    "Pushed",
    "Pruned",
    "Complete",
    "Failed",
    "Fresh",
    "Ready",
    "Stalled",
]

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Condition(StatusModel):
    """One condition of the job, in the form that Kubernetes objects share."""

    type: str = Field(
        max_length=316,
        description="Type of condition: Accepted, Suspended, InputsReady, WorkersReady, "
        "Progressing, Published, Pushed, Pruned, Complete, Failed, Fresh, Ready or Stalled.",
    )
    status: Literal["True", "False", "Unknown"] = Field(
        description="Status of the condition: True, False or Unknown."
    )
    reason: str = Field(
        min_length=1,
        max_length=1024,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Machine-readable reason for the status, in CamelCase.",
    )
    message: str = Field(max_length=32768, description="Human-readable explanation of the status.")
    last_transition_time: Time = Field(description="When the status last changed.")
    observed_generation: int | None = Field(
        default=None, ge=0, description="Generation of the job that the condition was set for."
    )


class PlanStatus(StatusModel):
    """The plan: grid, memory and communication volume."""

    grid: str | None = Field(
        default=None, description="Grid as graph partitions x feature partitions, such as 2x2."
    )
    replicas: int | None = Field(default=None, description="Number of workers.")
    memory_per_worker_bytes: int | None = Field(
        default=None, description="Estimated peak memory of a worker, in bytes."
    )
    scratch_bytes_per_worker: int | None = Field(
        default=None,
        description="Size of each worker's scratch volume, for tensors that do not fit in memory, "
        "in bytes; unset where all do.",
    )
    bytes_exchanged: int | None = Field(
        default=None, description="Estimated bytes sent between workers, summed over all workers."
    )
    tables: dict[str, int] | None = Field(
        default=None,
        description="Versions of the Delta and Iceberg tables that every attempt reads, by their "
        "fields in spec.input.",
    )


class WorkersStatus(StatusModel):
    """The pods of the current attempt."""

    desired: int | None = Field(default=None, description="Number of workers of the attempt.")
    ready: int | None = Field(default=None, description="Number of workers whose pod is ready.")
    failed: int | None = Field(
        default=None, description="Number of workers whose container has terminated."
    )
    stateful_set: str | None = Field(
        default=None, description="UID of the StatefulSet that the attempt began with."
    )
    pods: list[str] | None = Field(
        default=None,
        description="First characters of the UIDs of the attempt's pods, by rank; empty for one "
        "that was not seen yet.",
    )
    summary: str | None = Field(
        default=None, description="Ready and desired workers, such as 3/4, for display."
    )


class ProgressStatus(StatusModel):
    """Progress of the current attempt."""

    stage: str | None = Field(
        default=None, description="Current stage, such as ingest, infer or publish."
    )
    layer: int | None = Field(
        default=None, description="Current layer of the model, from 1; 0 outside the layers."
    )
    layers: int | None = Field(default=None, description="Number of the model's layers.")
    percent: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Progress of the whole attempt, in percent; never decreases.",
    )
    steps: int | None = Field(
        default=None,
        description="Count of work done; grows while anything is done, even if percent does not.",
    )
    done: str | None = Field(
        default=None, description="Progress with a percent sign, such as 43%, for display."
    )
    eta_seconds: int | None = Field(
        default=None, description="Estimated time until publication, in seconds."
    )
    edges_per_second: int | None = Field(
        default=None, description="Throughput: edges read or aggregated per second by all workers."
    )
    last_update_time: Time | None = Field(
        default=None, description="When the operator last saw that the workers got further."
    )


class ObstacleStatus(StatusModel):
    """What keeps the pods of the current attempt from starting."""

    reason: str | None = Field(
        default=None,
        description="Machine-readable reason, such as Unschedulable or CreateContainerConfigError.",
    )
    message: str | None = Field(
        default=None, description="Human-readable description, which names the pod."
    )
    since: Time | None = Field(default=None, description="When the operator first saw it.")


class InputsStatus(StatusModel):
    """The inputs that the job waits for, where it waits for some."""

    since: Time | None = Field(default=None, description="When the operator first looked.")
    next_look_time: Time | None = Field(
        default=None, description="When the operator looks again, unless they are ready."
    )
    looks: int | None = Field(default=None, description="How often it has looked.")
    missing: str | None = Field(
        default=None, description="What is missing and since when, for display."
    )
    fields: list[str] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="The fields of spec.input that are not ready, such as edges[0].",
    )
    ready_time: Time | None = Field(default=None, description="When all of them were ready.")


class QueuedStatus(StatusModel):
    """Time for which a queue held the pods; it counts for no deadline."""

    since: Time | None = Field(
        default=None, description="Since when pods are held; unset while none is."
    )
    seconds: int | None = Field(
        default=None, description="Time for which pods were held since startTime, in seconds."
    )
    attempt_seconds: int | None = Field(
        default=None, description="The same since attemptStartTime, in seconds."
    )


class OutputStatus(StatusModel):
    """The version that this job published or confirmed."""

    version: str | None = Field(default=None, description="Name of the version.")
    uri: str | None = Field(default=None, description="Prefix of the version's objects.")
    rows: int | None = Field(
        default=None, description="Number of embeddings (rows), of all node types."
    )
    dim: int | None = Field(
        default=None, description="Dimension of an embedding; of several node types, the largest."
    )
    types: list[TypeOutput] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="The node types that were published, where the graph has several.",
    )
    summary: str | None = Field(
        default=None,
        description="Rows and dimension, by node type where there are several, such as "
        "item 40 x 6, user 61 x 6, for display.",
    )
    manifest_digest: str | None = Field(
        default=None, description="SHA-256 of the version's manifest."
    )
    held: str | None = Field(
        default=None,
        max_length=1000,
        description="Why the gate (spec.output.gate) keeps the version from becoming current; "
        "unset where nothing does. It stays when the version is released by hand.",
    )
    confirmed: bool | None = Field(
        default=None,
        description="true where nothing was computed: inputs, model and job are those of this "
        "version, which was current.",
    )


class PushStatus(StatusModel):
    """The push of a version into the index of spec.push."""

    request: str | None = Field(
        default=None,
        description="Hash of spec.push and of the annotation embertide.dev/push-requested that "
        "this push is for.",
    )
    state: str | None = Field(
        default=None, description="For display: the reason of the condition Pushed."
    )
    request_time: Time | None = Field(
        default=None, description="When the operator saw that it was asked for."
    )
    attempts: int | None = Field(
        default=None, description="Number of attempts that failed and count against backoffLimit."
    )
    start_time: Time | None = Field(
        default=None, description="When the current attempt began; unset while none is made."
    )
    retry_time: Time | None = Field(default=None, description="When the next retry may start.")
    completion_time: Time | None = Field(
        default=None,
        description="When the push ended: pushed, or failed without further retries.",
    )
    version: str | None = Field(
        default=None, description="Version that readers of the index were switched to last."
    )
    pushed_time: Time | None = Field(
        default=None, description="When the operator saw that they were switched."
    )
    rows: int | None = Field(default=None, description="Rows of that version in the index.")
    seconds: float | None = Field(
        default=None, description="Duration of the attempt that switched them, in seconds."
    )
    names: list[str] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="Names that readers use: views, aliases or tables.",
    )


class FailureStatus(StatusModel):
    """The cause of the most recent failed attempt."""

    worker: str | None = Field(
        default=None, description="Name of the pod that failed first, if one did."
    )
    reason: str | None = Field(
        default=None, description="Machine-readable reason, such as Input or OutOfMemory."
    )
    exit_code: int | None = Field(default=None, description="Exit code of the container.")
    message: str | None = Field(
        default=None, description="Human-readable description of the failure."
    )


class JobStatus(StatusModel):
    """The observed state of the job; written by the operator."""

    observed_generation: int | None = Field(
        default=None, description="Generation of the job that this status was written for."
    )
    phase: Phase | None = Field(
        default=None,
        description="Pending, Waiting, Planning, Starting, Running, Restarting, Suspended, "
        "Succeeded or Failed; see conditions for details.",
    )
    stage: str | None = Field(
        default=None,
        description="For display: the stage of the run, or the reason for which it does not go on.",
    )
    operator: str | None = Field(
        default=None,
        description="The operator that reconciles the job, as namespace/name; others leave the "
        "job alone as long as this one is alive.",
    )
    attempt: int = Field(default=0, description="Number of the current attempt, from 1.")
    failures: int = Field(
        default=0, description="Number of failed attempts that count against backoffLimit."
    )
    disruptions: int | None = Field(
        default=None,
        ge=0,
        description="Number of attempts in a row that were disrupted; they do not count against "
        "backoffLimit.",
    )
    start_time: Time | None = Field(
        default=None,
        description="When the job was started or last resumed; activeDeadlineSeconds counts from "
        "this time.",
    )
    attempt_start_time: Time | None = Field(
        default=None, description="When the current attempt started."
    )
    retry_time: Time | None = Field(default=None, description="When the next retry may start.")
    completion_time: Time | None = Field(
        default=None,
        description="When the job finished: succeeded, or failed without further retries.",
    )
    versions: list[str] = Field(
        default_factory=list,
        description="Version names of the current attempt and of earlier ones that may have left "
        "something, oldest first; at most 10.",
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=32,
        description="Conditions of the job: Accepted, Suspended, InputsReady, WorkersReady, "
        "Progressing, Published, Pushed, Pruned, Complete, Failed, Fresh, Ready, Stalled.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    plan: PlanStatus | None = Field(
        default=None, description="The plan: grid, memory and communication volume."
    )
    workers: WorkersStatus | None = Field(
        default=None, description="The pods of the current attempt."
    )
    obstacle: ObstacleStatus | None = Field(
        default=None, description="What keeps the pods of the current attempt from starting."
    )
    inputs: InputsStatus | None = Field(
        default=None, description="The inputs that the job waits for, or has waited for."
    )
    queued: QueuedStatus | None = Field(
        default=None,
        description="Time for which a queue held the pods; it counts for no deadline.",
    )
    progress: ProgressStatus | None = Field(
        default=None, description="Progress of the current attempt."
    )
    output: OutputStatus | None = Field(
        default=None, description="The version that this job published."
    )
    push: PushStatus | None = Field(
        default=None, description="The push of a version into the index of spec.push."
    )
    report: RunStatus | None = Field(
        default=None, description="What the attempt that published did, in total."
    )
    last_failure: FailureStatus | None = Field(
        default=None, description="The cause of the most recent failed attempt."
    )
    failure: str | None = Field(
        default=None,
        description="For display: why the job failed, or its last attempt; unset once the job has "
        "succeeded.",
    )
    failure_log: str | None = Field(
        default=None,
        max_length=4096,
        description="The last lines of the log of the container that failed, or of worker 0 where "
        "a deadline ended the job, as embertide logs shows them.",
    )
