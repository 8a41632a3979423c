"""The EmbeddingJob: the single definition of what a manifest may contain.

The command line, the operator and the custom resource definition are all derived from these
models. `load_manifest` reads text and files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, model_validator

from embertide.spec import naming
from embertide.spec.affects import Affects
from embertide.spec.base import (
    FreeForm,
    SpecModel,
    normalise_uri,
    raise_problems,
)
from embertide.spec.cel import (
    Rule,
    optional_unchanged_once_accepted,
    or_default,
    unchanged_once_accepted,
    unchanged_once_finished,
)
from embertide.spec.edge_columns import EdgeColumns, EdgeFeatures
from embertide.spec.edges import EdgeFormat, EdgeInput
from embertide.spec.features import FeatureFormat, FeatureInput, FeatureScaling
from embertide.spec.freshness import Freshness
from embertide.spec.grid import GridShape
from embertide.spec.inference import Inference
from embertide.spec.inputs import Input
from embertide.spec.loading import Prepare, as_it_is, parse_document, read_file, read_manifest
from embertide.spec.metadata import MAX_NAME, NAME, Metadata
from embertide.spec.model import ModelRef
from embertide.spec.nodes import IdKind, NodeInput, NodeTable
from embertide.spec.output import Output, unknown_types
from embertide.spec.overlap import OUTPUT_RULES, output_overlaps
from embertide.spec.problems import Loc
from embertide.spec.push import Push
from embertide.spec.readiness import Ready
from embertide.spec.refresh import Refresh
from embertide.spec.storage import StorageSettings
from embertide.spec.tables import TABLE_FORMATS
from embertide.spec.targets import TargetTable, target_problems
from embertide.spec.targets_rules import BESIDE_TARGETS_RULES, beside_targets
from embertide.spec.version_names import targets_uri
from embertide.spec.workers import WORKERS_RULES, Workers, more_workers_than_nodes

API_VERSION = "embertide.dev/v1alpha1"
KIND = "EmbeddingJob"

__all__ = [
    "API_VERSION",
    "KIND",
    "EdgeColumns",
    "EdgeFeatures",
    "EdgeFormat",
    "EdgeInput",
    "EmbeddingJob",
    "FeatureFormat",
    "FeatureInput",
    "FeatureScaling",
    "Freshness",
    "GridShape",
    "IdKind",
    "Inference",
    "Input",
    "JobSpec",
    "Metadata",
    "ModelRef",
    "NodeInput",
    "NodeTable",
    "Output",
    "Push",
    "Ready",
    "Refresh",
    "StorageSettings",
    "Workers",
    "load_manifest",
    "load_template",
    "normalise_uri",
]


ObjectsOf = EdgeInput | NodeTable | FeatureInput | TargetTable
"""An input with objects."""


_NODE_NAME = or_default("n.name", "'node'")
_TYPE_RULES = (
    Rule(
        "!has(self.output.nodeTypes) || self.output.nodeTypes.all(t, "
        f"self.input.nodes.exists(n, {_NODE_NAME} == t))",
        "every one must be the name of a node type in spec.input.nodes",
        ".output.nodeTypes",
    ),
)


class JobSpec(SpecModel):
    """The inputs, the model, the output, and how to run the job."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *OUTPUT_RULES, *_TYPE_RULES, *WORKERS_RULES, *BESIDE_TARGETS_RULES,
    )  # fmt: skip

    input: Annotated[Input, Affects.RESULT | Affects.WORKERS] = Field(
        description="The graph and its node features."
    )
    model: Annotated[ModelRef, Affects.RESULT | Affects.WORKERS] = Field(
        description="The trained model, or one that needs no training."
    )
    inference: Annotated[Inference, Affects.RESULT | Affects.WORKERS] = Field(
        default_factory=Inference, description="How the embeddings are computed."
    )
    output: Annotated[Output, Affects.RESULT] = Field(
        description="Where and how the embeddings are published."
    )
    workers: Annotated[Workers, Affects.WORKERS] = Field(
        default_factory=Workers,
        description="The workers: how many, where, and with what resources.",
    )
    storage: Annotated[StorageSettings, Affects.WORKERS] = Field(
        default_factory=StorageSettings, description="How to access S3."
    )
    freshness: Annotated[Freshness | None, Affects.OPERATOR] = Field(
        default=None,
        description="The freshness objective of the output, which the condition Fresh reports, "
        "also after the job is complete. If unset, there is none.",
    )
    refresh: Annotated[Refresh, Affects.NEITHER] = Field(
        default_factory=Refresh, description="When embeddings are computed again."
    )
    push: Annotated[Push | None, Affects.NEITHER] = Field(
        default=None,
        description="The index that serves the embeddings. Once a version is published and "
        "current, it is pushed into it: a new table is loaded and verified, and readers are "
        "switched in one step, which the condition Pushed reports. It can change at any time: "
        "then the current version is pushed again. If unset, nothing is pushed.",
    )
    managed_by: Annotated[str | None, Affects.OPERATOR] = Field(
        default=None,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[^\s/]+$",
        description="The controller that runs the job, such as kueue.x-k8s.io/multikueue; the "
        f"operator leaves a job with another name than {naming.MANAGED_BY} entirely alone. Cannot "
        "change. "
        "Ignored outside Kubernetes.",
    )
    operator_class: Annotated[str | None, Affects.OPERATOR] = Field(
        default=None,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="The class of operators that reconcile the job: the value operator.class of "
        "the Helm chart. If unset, operators without a class do. A job that changes its class "
        "changes its operator and runs on.",
    )
    suspend: Annotated[bool, Affects.OPERATOR] = Field(
        default=False,
        description="true stops the workers and keeps the job; false starts a new attempt.",
    )
    backoff_limit: Annotated[int, Affects.OPERATOR] = Field(
        default=3,
        ge=0,
        description="Number of retries after a failed attempt. A non-retryable failure, such as "
        "an invalid input, fails the job immediately.",
    )
    active_deadline_seconds: Annotated[int | None, Affects.OPERATOR] = Field(
        default=None,
        ge=1,
        description="Time limit for the whole job including retries, in seconds; the job fails "
        "when it is exceeded. If unset, there is no limit.",
    )
    pre_running_deadline_seconds: Annotated[int, Affects.OPERATOR] = Field(
        default=1800,
        ge=1,
        description="Time limit for all workers of an attempt to be running, in seconds; the job "
        "fails when it is exceeded, and reports why they were not running.",
    )
    progress_deadline_seconds: Annotated[int, Affects.OPERATOR] = Field(
        default=900,
        ge=1,
        description="Time limit without progress, in seconds; an attempt that exceeds it fails, "
        "and is retried within backoffLimit.",
    )
    ttl_seconds_after_finished: Annotated[int | None, Affects.OPERATOR] = Field(
        default=None,
        ge=0,
        description="Time after which a finished job is deleted, in seconds; its published "
        "versions are kept. If unset, the job is kept too.",
    )

    @property
    def published_uri(self) -> str:
        """Where versions are published: the output, or the folder below it for some nodes alone."""
        uri = self.output.uri
        return uri if self.inference.targets is None else targets_uri(uri)

    @property
    def object_inputs(self) -> list[tuple[str, ObjectsOf]]:
        """Each input with objects: its field, such as ``edges[0]``, and the input.

        The field is below ``spec.input``, but for that of targets.
        """
        targets = self.inference.targets
        table = None if targets is None else targets.table
        more = [] if table is None else [("inference.targets.table", table)]
        return [*self.input.object_inputs, *more]

    @property
    def tables(self) -> list[tuple[str, ObjectsOf]]:
        """Each input that is a Delta or Iceberg table: its field, and the input."""
        return [(field, item) for field, item in self.object_inputs if item.format in TABLE_FORMATS]

    @property
    def waits(self) -> list[tuple[str, ObjectsOf, Ready]]:
        """Each input that is waited for: its field, such as ``edges[0]``, and its conditions."""
        return [
            (field, item, item.ready)
            for field, item in self.object_inputs
            if item.ready is not None
        ]

    @model_validator(mode="after")
    def _check_output(self) -> Self:
        found = [
            *output_overlaps(self.input, self.model.uri, self.output.uri, self.inference.targets),
            *unknown_types(self.input, self.output),
            *target_problems(self.inference.targets, self.input, self.output),
            *beside_targets(self),
            *more_workers_than_nodes(self.workers, self.input),
        ]
        raise_problems(found)
        return self


_WITHOUT_EFFECT_AT_THE_END = (
    "workers",
    "inference",
    "storage",
    "suspend",
    "backoffLimit",
    "activeDeadlineSeconds",
    "preRunningDeadlineSeconds",
    "progressDeadlineSeconds",
)
"""Fields that nothing reads once a job has finished; freshness, operatorClass and the time to live
are read until it is deleted."""
_ROOT_RULES = (
    Rule(
        f"self.metadata.name.size() <= {MAX_NAME}",
        f"must have at most {MAX_NAME} characters, since pods' names add to it",
        ".metadata.name",
    ),
    Rule(
        f"self.metadata.name.matches(r'{NAME}')",
        "must be lower-case letters, digits and '-', begin with a letter and not end with '-'",
        ".metadata.name",
    ),
    *(unchanged_once_accepted(field) for field in ("input", "model", "output")),
    optional_unchanged_once_accepted("inference.targets"),
    *(unchanged_once_finished(field) for field in _WITHOUT_EFFECT_AT_THE_END),
    Rule(
        "has(self.spec.managedBy) == has(oldSelf.spec.managedBy) && "
        "(!has(self.spec.managedBy) || self.spec.managedBy == oldSelf.spec.managedBy)",
        "spec.managedBy cannot change; create a job with another name",
        ".spec.managedBy",
        "FieldValueForbidden",
    ),
)


class EmbeddingJob(SpecModel):
    """A job that computes and publishes the embeddings of all nodes of a graph."""

    rules: ClassVar[tuple[Rule, ...]] = _ROOT_RULES

    api_version: Literal["embertide.dev/v1alpha1"] = Field(
        description="API version: embertide.dev/v1alpha1."
    )
    kind: Literal["EmbeddingJob"] = Field(description="Kind of object: EmbeddingJob.")
    metadata: Metadata = Field(description="Name and labels.")
    spec: JobSpec = Field(description="The inputs, the model, the output, and how to run the job.")
    status: FreeForm | None = Field(
        default=None, description="Written by the operator; ignored in a manifest."
    )

    def forced(self) -> Self:
        """The job as one that computes a version though nothing has changed."""
        return self._refreshed(mode="full")

    def resuming(self, resume: Literal["auto", "always", "never"]) -> Self:
        """The job as one that keeps layers for a next attempt always, or never."""
        return self._refreshed(resume=resume)

    def keeping_nothing(self) -> Self:
        """The job as one that keeps nothing for a next attempt or run."""
        return self._refreshed(resume="never", keep=False)

    def _refreshed(self, **changes: str | bool) -> Self:
        refresh = self.spec.refresh.model_copy(update=changes)
        return self.model_copy(update={"spec": self.spec.model_copy(update={"refresh": refresh})})


def load_manifest(text_or_path: str | Path, prepare: Prepare = as_it_is) -> EmbeddingJob:
    """Read and check one EmbeddingJob, from a file or from YAML (or JSON) text.

    A string with a line break or a brace is text, any other string is a path. Relative paths
    inside a manifest file are resolved against the file's directory.

    Args:
        prepare: may change the data before it is checked, such as fill placeholders in.

    Raises:
        ManifestError: every problem found, or the line and column of a YAML error.
    """
    return read_manifest(EmbeddingJob, text_or_path, _overlaps_anyway, prepare)


def load_template(path: Path, prepare: Prepare) -> EmbeddingJob:
    """Read the file of a job for a cluster, and check what ``prepare`` makes of it.

    Relative paths are refused: they mean nothing on another machine.

    Raises:
        ManifestError: every problem found, those of ``prepare`` first.
    """
    text, source = read_file(path), str(path)
    return parse_document(EmbeddingJob, text, source, None, _overlaps_anyway, prepare)


def _overlaps_anyway(data: dict[str, Any], context: dict[str, Any]) -> list[tuple[Loc, str]]:
    """Overlaps of a job with other problems, for which pydantic skips JobSpec's own check."""
    try:
        spec = data["spec"]
        inputs = Input.model_validate(spec["input"], context=context)
        model = ModelRef.model_validate(spec["model"], context=context)
        output = Output.model_validate(spec["output"], context=context)
    except (ValidationError, KeyError, TypeError):
        return []
    found = [*output_overlaps(inputs, model.uri, output.uri), *unknown_types(inputs, output)]
    return [(("spec", *path), message) for path, message in found]
