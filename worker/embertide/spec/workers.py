"""``spec.workers`` and ``spec.storage``: who computes, and how S3 is reached."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, WithJsonSchema, model_validator

from embertide.spec.base import FreeForm, SpecModel, raise_problems
from embertide.spec.grid import GridShape


def _kind_of_grid(value: object) -> str | None:
    if value == "auto":
        return "<auto>"
    return "<grid>" if isinstance(value, dict | GridShape) else None


GridChoice = Annotated[
    Annotated[Literal["auto"], Tag("<auto>")] | Annotated[GridShape, Tag("<grid>")],
    Discriminator(
        _kind_of_grid,
        custom_error_type="grid",
        custom_error_message="must be 'auto', or like {graph: 4, feature: 2}",
    ),
    # A schema of Kubernetes cannot say "this word or that object", but what either has to be.
    WithJsonSchema(
        {
            "x-kubernetes-preserve-unknown-fields": True,
            "pattern": "^auto$",
            "properties": GridShape.model_json_schema()["properties"],
        }
    ),
]


class Workers(SpecModel):
    """The worker processes."""

    grid: GridChoice = Field(
        default="auto",
        description="The grid of workers. Either the word auto, which chooses it for count or the "
        "inputs' size; or an object with graph, the number of graph partitions, and feature, the "
        "number of feature partitions, such as {graph: 4, feature: 2}. There are graph times "
        "feature workers.",
    )
    count: int | None = Field(
        default=None,
        ge=1,
        description="Number of workers for grid: auto. Left out, it follows from the inputs' size.",
    )
    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="cpu (gloo), or cuda (NCCL) with one GPU for each worker."
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        description="Container image of the workers. Left out, it is the operator's own for this "
        "device. Unused on one machine.",
    )
    resources: FreeForm | None = Field(
        default=None,
        description="Resources of each worker's container: limits and requests, as in a pod. "
        "Memory left out is planned from the inputs. Unused on one machine.",
    )
    service_account_name: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        description="Service account of the workers' pods, for an identity that a cloud ties to "
        "it. Its token for the Kubernetes API is not mounted. Unused on one machine.",
    )
    pod_template: FreeForm | None = Field(
        default=None,
        description="Parts of a pod template, metadata and spec, to merge into the workers' pods: "
        "node selectors, tolerations, volumes, environment. The workers' own container is named "
        "worker. Unused on one machine.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if isinstance(self.grid, GridShape) and self.count is not None:
            size = self.grid.workers
            if self.count != size:
                message = (
                    f"is {self.count}; the grid {self.grid} has {size} workers (leave count out)"
                )
                raise_problems([(("count",), message)])
        return self


class StorageSettings(SpecModel):
    """How S3 is reached. Credentials never stand in a manifest."""

    endpoint_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/\s]+",
        description="Endpoint of an S3-compatible store, such as https://minio.example:9000.",
    )
    region: str | None = Field(default=None, min_length=1, description="Region of the buckets.")
    path_style: bool | None = Field(
        default=None,
        description="true puts the bucket in the path instead of the host name. Left out, it is "
        "true when there is an endpointUrl.",
    )
    credentials_secret: str | None = Field(
        default=None,
        min_length=1,
        description="Secret in the job's namespace with AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY. Without it, and on one machine, the standard credential chain is "
        "used.",
    )
    max_attempts: int = Field(
        default=5, ge=1, description="How often a request is tried before the store is given up."
    )
    connect_timeout_seconds: float = Field(
        default=5.0, gt=0, description="How long to wait for a connection, in seconds."
    )
