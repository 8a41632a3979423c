"""``spec.workers``: how many workers there are, where they run, and with what resources."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, WithJsonSchema, model_validator

from embertide.spec.affects import Affects
from embertide.spec.base import FreeForm, Problem, SpecModel, raise_problems
from embertide.spec.cel import Rule
from embertide.spec.grid import MAX_WORKERS, GridShape
from embertide.spec.inputs import Input
from embertide.spec.matching import Matching
from embertide.spec.storage import StorageSettings

__all__ = [
    "RESOURCES",
    "WORKERS_RULES",
    "GridChoice",
    "StorageSettings",
    "Workers",
    "more_workers_than_nodes",
    "parse_memory",
]

_MEMORY = r"^[0-9]{1,6}(\.[0-9]{1,3})?(Mi|Gi|Ti)B?$"
_UNITS = {"Mi": 20, "Gi": 30, "Ti": 40}
LocalFolder = Annotated[
    str,
    Matching(
        # A name that begins with dots has something after them, unless it is a single dot.
        r"^(/(\.|\.?[^/:.][^/:]*|\.\.[^/:]+)?)+$",
        1024,
        "must be an absolute path without colons and without .. as a folder, such as /mnt/nvme",
    ),
]
"""A folder that pods can mount a volume at."""


def parse_memory(text: str) -> int:
    """The bytes that a text such as ``2GiB``, ``1.5Gi`` or ``512MiB`` names.

    Raises:
        ValueError: any other text.
    """
    if not re.match(_MEMORY, text):
        raise ValueError(f"{text!r} must be a number with its unit, such as 512MiB, 2GiB or 1.5Gi")
    number, unit = text.removesuffix("B")[:-2], text.removesuffix("B")[-2:]
    return int(float(number) * (1 << _UNITS[unit]))


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
    # A structural schema has no union of a string and an object, but can constrain each.
    WithJsonSchema(
        {
            "x-kubernetes-preserve-unknown-fields": True,
            "pattern": "^auto$",
            "properties": GridShape.model_json_schema()["properties"],
        }
    ),
]


def _named_fields(**descriptions: str) -> WithJsonSchema:
    """An object of any fields, some of which have names and any content.

    In a rule (CEL) an object equals another of as many fields if those that both have are equal,
    so a field without a name here could take the place of another unseen.
    """
    any_content = {"x-kubernetes-preserve-unknown-fields": True}
    fields = {name: {"description": text} | any_content for name, text in descriptions.items()}
    return WithJsonSchema({"type": "object", **any_content, "properties": fields})


RESOURCES = _named_fields(
    limits="The most that the container may use of each resource.",
    requests="What the scheduler sets aside of each resource.",
    claims="Claims of the pod that the container uses.",
)
_POD_TEMPLATE = _named_fields(
    metadata="Labels and annotations of the pods.", spec="As the spec of a pod."
)


_NO_GPU = (
    "has no effect with device: cpu, whose layers are computed on the CPU; omit it, or set"
    " workers.device to cuda"
)


class Workers(SpecModel):
    """The workers: how many, where they run and with what resources."""

    grid: GridChoice = Field(
        default="auto",
        description="The grid of workers. Either the word auto: as many graph partitions as count "
        "says; or an object with graph, the number of graph partitions, and "
        "feature, the number of feature partitions, such as {graph: 4, feature: 2}. The number of "
        "workers is graph times feature.",
    )
    count: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WORKERS,
        description="Number of workers for grid: auto. If unset, it is derived from the size of "
        "the inputs; outside Kubernetes it is 1.",
    )
    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="cpu (gloo backend), or cuda (NCCL backend, one GPU per worker)."
    )
    memory: str | None = Field(
        default=None,
        pattern=_MEMORY,
        description="Most memory that a worker may take, with its imports and without page cache, "
        "such as 2GiB or 512Mi. Where the plan needs more, tensors of nodes are on disk, in "
        "scratch, then edges and the graph, too; where it still does, the run is refused before "
        "anything is computed. If unset, all tensors are in memory; on a cluster the container's "
        "limit counts then.",
    )
    device_memory: str | None = Field(
        default=None,
        pattern=_MEMORY,
        description="Most memory of its GPU that a worker may take with device: cuda, such as "
        "8GiB. Where the plan needs more, tensors of nodes are in host memory and parts of them "
        "on the GPU; where it still does, the run is refused before anything is computed. If "
        "unset, what the GPU has free as the run begins.",
    )
    scratch: LocalFolder | None = Field(
        default=None,
        description="Folder on a local disk for what does not fit in memory, an absolute "
        "path. Its files have no names and are gone with the workers. If unset, the system's "
        "folder for temporary files. On a cluster the worker's scratch volume is mounted there, "
        "unless the podTemplate mounts another one there or above.",
    )
    scratch_storage_class: Annotated[str | None, Affects.WORKERS | Affects.OPERATOR] = Field(
        default=None,
        max_length=253,
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        description="StorageClass of each worker's scratch volume where tensors do not fit in "
        "memory: a volume as large as the plan says, which goes with its pod. If unset, that of "
        "the chart (worker.scratch.storageClassName), else the node's disk. Ignored outside "
        "Kubernetes.",
    )
    image: Annotated[str | None, Affects.WORKERS | Affects.OPERATOR] = Field(
        default=None,
        min_length=1,
        description="Container image of the workers. If unset, the operator's default for this "
        "device. Ignored outside Kubernetes.",
    )
    resources: Annotated[FreeForm, RESOURCES] | None = Field(
        default=None,
        description="Resource limits and requests of each worker's container, as in a pod. "
        "If memory is unset, it is planned from the size of the inputs. Ignored outside "
        "Kubernetes.",
    )
    service_account_name: Annotated[str | None, Affects.WORKERS | Affects.OPERATOR] = Field(
        default=None,
        max_length=253,
        pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$",
        description="Service account of the workers' pods, for cloud workload identity. Its token "
        "for the Kubernetes API is not mounted. Ignored outside Kubernetes.",
    )
    pod_template: Annotated[
        Annotated[FreeForm, _POD_TEMPLATE] | None, Affects.WORKERS | Affects.OPERATOR
    ] = Field(
        default=None,
        description="Pod template (metadata and spec) to merge into the workers' pods: node "
        "selectors, tolerations, volumes, environment variables. The container of the worker is "
        "named worker. Ignored outside Kubernetes.",
    )

    @property
    def memory_bytes(self) -> int | None:
        """The most that a worker may take; None where nothing is set."""
        return None if self.memory is None else parse_memory(self.memory)

    @property
    def device_memory_bytes(self) -> int | None:
        """The most of its GPU that a worker may take; None where nothing is set."""
        return None if self.device_memory is None else parse_memory(self.device_memory)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if isinstance(self.grid, GridShape) and self.count is not None:
            size = self.grid.workers
            if self.count != size:
                message = f"is {self.count}; the grid {self.grid} has {size} workers (omit count)"
                raise_problems([(("count",), message)])
        if self.device_memory is not None and self.device == "cpu":
            raise_problems([(("deviceMemory",), _NO_GPU)])
        return self


WORKERS_RULES = (
    Rule(
        "!has(self.workers.count) || self.input.nodes.exists(n, "
        "!has(n.count) || n.count >= self.workers.count)",
        "must be at most the number of nodes of the largest node type",
        ".workers.count",
    ),
    Rule(
        "!has(self.workers.deviceMemory) || self.workers.device == 'cuda'",
        _NO_GPU,
        ".workers.deviceMemory",
        "FieldValueForbidden",
    ),
)


def more_workers_than_nodes(workers: Workers, given: Input) -> list[Problem]:
    """A problem where the counts of all node types show that some workers would have no node."""
    most = max(node.count or MAX_WORKERS for node in given.nodes)
    grid = workers.grid if isinstance(workers.grid, GridShape) else None
    asked = workers.count if grid is None else grid.workers
    if asked is None or asked <= most:
        return []
    field, shown = ("count", f"{asked}") if grid is None else ("grid", f"{grid}, {asked} workers")
    message = f"is {shown}; the largest node type has only {most} nodes (count)"
    return [(("workers", field), f"{message}: use at most {most} workers")]
