"""EmbeddingSchedule: what a schedule did and does, which the operator writes beside its CronJob.

It has no spec: the CronJob stays what fires, and what one edits. It is a separate kind since a
CronJob's status belongs to its controller, and has neither conditions nor columns to add.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.spec.run_status import StatusModel
from embertide.spec.status import Condition, Time

KIND = "EmbeddingSchedule"
PLURAL = "embeddingschedules"
SINGULAR = "embeddingschedule"
SHORT_NAME = "esch"

OUTPUT_ANNOTATION = "embertide.dev/output"
"""On a CronJob: ``spec.output.uri`` of its template, with placeholders."""
MAX_AGE_ANNOTATION = "embertide.dev/max-age"
"""On a CronJob: ``spec.freshness.maxAge`` of its template."""
CLASS_ANNOTATION = "embertide.dev/operator-class"
"""On a CronJob: ``spec.operatorClass`` of its template."""

ScheduleCondition = Literal["Submitted", "Fresh", "Ready"]


class ScheduleStatus(StatusModel):
    """The observed state of a schedule; written by the operator."""

    schedule: str | None = Field(default=None, description="When it fires, as the CronJob says.")
    time_zone: str | None = Field(default=None, description="Time zone of schedule.")
    suspended: bool | None = Field(default=None, description="Whether the CronJob is suspended.")
    since: Time | None = Field(
        default=None,
        description="From when on firings may count as missed: when the operator first saw the "
        "schedule, or it was resumed or changed.",
    )
    last_firing_time: Time | None = Field(default=None, description="When it last fired.")
    next_firing_time: Time | None = Field(
        default=None, description="When it fires next; unset while it is suspended."
    )
    missed: int | None = Field(
        default=None, ge=0, description="Number of firings in a row that did not take place."
    )
    failed_firings: int | None = Field(
        default=None, ge=0, description="Number of firings in a row that made no job."
    )
    judged_time: Time | None = Field(
        default=None, description="The firing that failedFirings was last counted for."
    )
    job: str | None = Field(default=None, description="The EmbeddingJob of the last firing.")
    job_phase: str | None = Field(default=None, description="The phase of that job.")
    last_success_time: Time | None = Field(
        default=None, description="When a job of the schedule last published."
    )
    output: str | None = Field(
        default=None, description="The output of its jobs, with placeholders."
    )
    max_age_seconds: int | None = Field(
        default=None, description="The freshness objective of its output, in seconds."
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=8,
        description="Submitted: the last firing made its job, or had no need to. Fresh: a job of "
        "the schedule has published within the freshness objective. Ready: both.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
