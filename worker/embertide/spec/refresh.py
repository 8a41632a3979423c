"""``spec.refresh``: what a run does where the current version has all that it would compute."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embertide.spec.base import SpecModel


class Refresh(SpecModel):
    """When embeddings are computed again."""

    mode: Literal["auto", "full"] = Field(
        default="auto",
        description="auto: where release, job, model and inputs are those of the current version, "
        "by the sizes and ETags of all objects and the versions of tables, it is confirmed and "
        "nothing is computed. full: every run computes a version.",
    )
    resume: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Whether an attempt that follows a failed one goes on after the last layer "
        "that was kept below the output. auto: a layer is kept where writing it takes at most a "
        "tenth of the time that computing it again would, by the plan's estimates. always: every "
        "layer is kept but the last, which is published. never: none is kept, and none is read.",
    )
