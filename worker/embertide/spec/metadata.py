"""The metadata of a job, of which a manifest may say the name, the namespace and labels."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from embertide.spec import naming
from embertide.spec.base import SpecModel

# Set by the API server, so present in a manifest that came from `kubectl get -o yaml`.
_SERVER_FIELDS = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


NAME, MAX_NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$", naming.MAX_NAME


class Metadata(SpecModel):
    """Name and labels, as every Kubernetes object has them."""

    # A StatefulSet's pods carry its name and an 11 character suffix in a label of at most 63.
    name: str = Field(
        min_length=1,
        max_length=MAX_NAME,
        pattern=NAME,
        description="Name of the job: lower-case letters, digits and '-', at most 52 characters.",
    )
    namespace: str | None = Field(
        default=None, min_length=1, description="Kubernetes namespace; ignored outside Kubernetes."
    )
    labels: dict[str, str] = Field(default_factory=dict, description="Kubernetes labels.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Kubernetes annotations.")

    @model_validator(mode="before")
    @classmethod
    def _drop_server_fields(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if key not in _SERVER_FIELDS}
        return data
