"""``status.report``: what an attempt that published did, kept after its workers are gone.

Rank 0 sends it with its last ``/status``, the operator copies it. It has one entry for each axis
and primitive, one for each stage, and a bounded number for node types, relations and workers, so
its size does not grow with the graph. A graph of one node type or relation has no list of them.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_ENTRIES = 64
MAX_REASON = 512
"""Characters."""


class StatusModel(BaseModel):
    """Base of the status objects: camelCase outside, frozen, unknown fields are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )

    def to_object(self) -> dict[str, Any]:
        """The JSON object for the API; unset fields are omitted."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


Name = Annotated[str, Field(max_length=63)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]


class TypeOutput(StatusModel):
    """The embeddings of one of several node types."""

    name: Name = Field(description="Name of the node type.")
    rows: Count = Field(description="Number of embeddings (rows) of the type.")
    dim: Count = Field(description="Dimension of an embedding of the type.")


class TypeReport(StatusModel):
    """One of several node types that the run read."""

    name: Name = Field(description="Name of the node type.")
    nodes: Count = Field(description="Number of nodes of the type.")


class RelationReport(StatusModel):
    """One of several relations that the run read."""

    name: str = Field(
        max_length=255,
        description="The relation as source type, edge type and destination type, such as "
        "user:buys:item; other stands for all beyond the first 32.",
    )
    edges: Count = Field(description="Number of edges of the relation.")


class DroppedReport(StatusModel):
    """Edges of one relation that were left out, since an end is not among the nodes."""

    name: str = Field(
        max_length=255,
        description="The relation as source type, edge type and destination type; other stands for "
        "all beyond the first 32.",
    )
    edges: Count = Field(description="Number of edges (rows of the input) that were left out.")
    rows: Count = Field(description="Number of edges (rows) of the input, these among them.")


class MergedReport(StatusModel):
    """Nodes of one relation with several self-loops of different weight, of which one counts."""

    name: str = Field(
        max_length=255,
        description="The relation as source type, edge type and destination type.",
    )
    nodes: Count = Field(description="Number of such nodes.")
    first: str = Field(max_length=255, description="Id of one of them.")


class StageReport(StatusModel):
    """One stage of the run."""

    name: Name = Field(description="Name of the stage, such as ingest or infer.")
    seconds: float = Field(description="Duration on the slowest worker, in seconds.")


class ExchangeReport(StatusModel):
    """What moved between workers over one axis for one primitive, in all layers."""

    axis: Name = Field(description="Axis of the grid: graph, feature or world.")
    primitive: Name = Field(description="What the data was for, such as spmm or gemm.")
    bytes: int = Field(description="Bytes sent by all workers.")
    planned_bytes: int | None = Field(
        default=None, description="Bytes that the plan expected all workers to send."
    )
    most_bytes: int = Field(
        description="Bytes that each layer's busiest worker sent, summed over the layers."
    )
    messages: int = Field(description="Messages sent by all workers.")
    planned_messages: int | None = Field(
        default=None, description="Messages that the plan expected all workers to send."
    )
    groups: int = Field(description="Groups received by all workers.")
    largest_group_bytes: int = Field(description="Size of the largest group, in bytes.")
    depth: int = Field(description="Largest number of groups in flight at the same time.")
    wait_seconds: float = Field(description="Time blocked waiting, summed over all workers.")
    longest_wait_seconds: float = Field(
        description="Time that each layer's longest waiting worker was blocked, summed over the "
        "layers."
    )
    overlapped_seconds: float = Field(
        description="Computation overlapped with communication, summed over all workers."
    )


class MemoryReport(StatusModel):
    """Memory of the fullest worker above its baseline."""

    peak_bytes: int = Field(description="Measured peak, in bytes.")
    planned_bytes: int = Field(description="Estimated peak, in bytes.")
    container_peak_bytes: int | None = Field(
        default=None,
        description="Measured peak of the fullest container, with imports and all its processes, "
        "in bytes: what a memory limit must hold.",
    )


class WorkerTotals(StatusModel):
    """What one worker sent, waited and took in the whole run."""

    rank: int = Field(description="Rank of the worker.")
    graph_bytes: int = Field(description="Bytes that it sent along the graph axis.")
    feature_bytes: int = Field(description="Bytes that it sent along the feature axis.")
    wait_seconds: float = Field(description="Time that it was blocked waiting, in seconds.")
    peak_bytes: int = Field(description="Measured peak memory above the baseline, in bytes.")
    planned_bytes: int = Field(description="Estimated peak memory above the baseline, in bytes.")


class StorageReport(StatusModel):
    """Traffic of all workers with object stores."""

    read_bytes: int = Field(description="Bytes of objects read.")
    written_bytes: int = Field(description="Bytes of objects written.")
    requests: int = Field(description="Requests sent, retries included.")
    retries: int = Field(description="Requests that were sent again after a failure.")
    errors: int = Field(description="Calls that failed after all retries.")


class TypeChanges(StatusModel):
    """The rows of one result, beside those of the version that was current before."""

    name: Annotated[str, Field(max_length=127)] | None = Field(
        default=None,
        description="Name of the node type, of the result, or of both, such as user/logits; unset "
        "where the graph has one node type and the model one result.",
    )
    rows: Count = Field(description="Number of rows of the version.")
    new_rows: Count = Field(description="Number of rows whose id the version before lacks.")
    removed_rows: Count = Field(description="Number of rows whose id only the version before has.")
    changed_rows: Count = Field(description="Number of rows whose values differ in any bit.")
    zero_rows: Count = Field(description="Number of rows whose values are all zero.")
    duplicate_rows: Count = Field(
        description="Number of rows whose vector another row has too; an estimate beyond 131,072."
    )
    cosine: float | None = Field(
        default=None,
        description="Cosine with the same row of the version before that 5% of the rows do not "
        "exceed; unset where the vectors are not comparable.",
    )
    overlap: float | None = Field(
        default=None,
        description="Share of its 10 nearest neighbours that a row keeps, on average, within a "
        "sample.",
    )
    residual: float | None = Field(
        default=None,
        description="Share of the sample's variance that no rotation and scaling explains.",
    )


class ComparisonReport(StatusModel):
    """The comparison with the version that was current before."""

    previous: Name = Field(description="Name of the version before.")
    same_model: bool = Field(description="Whether both were computed with the same model.")
    seconds: float = Field(description="Duration of the comparison, in seconds.")
    types: list[TypeChanges] = Field(
        max_length=MAX_ENTRIES, description="The node types and results that both versions have."
    )


class LayerCheckReport(StatusModel):
    """Rows of one layer that were computed a second time."""

    layer: Count = Field(description="Number of the layer, from 0.")
    rows: Count = Field(description="Number of rows that were compared.")
    largest_error: float = Field(
        description="Largest error of any value, as a share of the largest magnitude of the rows."
    )


class SelfCheckReport(StatusModel):
    """Rows of every layer, computed a second time in float64 and compared."""

    seconds: float = Field(description="Duration on the slowest worker, in seconds.")
    tolerance: float = Field(
        description="Error that a layer's rows may have, as a share of the largest magnitude."
    )
    layers: list[LayerCheckReport] = Field(max_length=MAX_ENTRIES, description="Every layer.")
    skipped: Count = Field(
        description="Number of operations whose rows were not computed again, since they need a "
        "statistic over all nodes."
    )


class RunStatus(StatusModel):
    """What the attempt that published did, in total."""

    attempt: int | None = Field(default=None, description="Number of the attempt.")
    version: str | None = Field(default=None, description="Name of the published version.")
    grid: str | None = Field(
        default=None, description="Grid as graph partitions x feature partitions, such as 2x2."
    )
    kernels: str | None = Field(
        default=None, max_length=256, description="What computed: native code, or torch and why."
    )
    seconds: float | None = Field(default=None, description="Duration of the run, in seconds.")
    nodes: int | None = Field(default=None, description="Number of nodes of the graph.")
    edges: int | None = Field(default=None, description="Number of edges of the graph.")
    node_types: list[TypeReport] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="The node types that were read, where the graph has several.",
    )
    relations: list[RelationReport] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="The relations that were read, where the graph has several.",
    )
    dropped_edges: list[DroppedReport] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="The edges that were left out, since an end is not among the nodes "
        "(unknownNodes), by relation; unset where none were.",
    )
    empty_relations: list[Annotated[str, Field(max_length=255)]] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="The relations whose input had no objects (optional); unset where none.",
    )
    missing_days: Count | None = Field(
        default=None,
        description="Number of days of windows that had no objects (window.missingDays); unset "
        "where none.",
    )
    filled_nodes: list[TypeReport] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="The node types with new nodes, which the model's table has no rows of "
        "(missing), and how many these were; unset where there were none.",
    )
    merged_loops: list[MergedReport] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="The relations with nodes that have several self-loops of different weight, of "
        "which one counts; unset where there were none.",
    )
    resumed_layer: Count | None = Field(
        default=None,
        description="The layer, from 1, that an earlier attempt had kept and after which this one "
        "went on; unset where it computed all.",
    )
    kept_layers: list[Count] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="The layers that the attempt kept for a next one; unset where none.",
    )
    refreshed_rows: Count | None = Field(
        default=None,
        description="Rows of the results that were computed, where all others are those of the "
        "version before (refresh.keep); unset in a full run.",
    )
    full_run: str | None = Field(
        default=None,
        max_length=MAX_REASON,
        description="Why all rows were computed, where only those that differ were asked for or "
        "rows of the version before were kept (refresh); unset otherwise.",
    )
    target_rows: Count | None = Field(
        default=None,
        description="Rows of the version, where inference.targets names the nodes; unset where it "
        "has all.",
    )
    target_edges: Count | None = Field(
        default=None,
        description="Edges that the layers went over for these rows, of all layers; unset where "
        "all rows were computed.",
    )
    comparison: ComparisonReport | None = Field(
        default=None,
        description="The comparison with the version that was current before; unset where there "
        "was nothing to compare with.",
    )
    self_check: SelfCheckReport | None = Field(
        default=None,
        description="Rows of every layer that were computed a second time; unset where none were "
        "(checkedRows: 0).",
    )
    stages: list[StageReport] = Field(
        default_factory=list, max_length=MAX_ENTRIES, description="Duration of every stage."
    )
    exchange: list[ExchangeReport] = Field(
        default_factory=list,
        max_length=MAX_ENTRIES,
        description="What moved between workers, by axis and primitive.",
    )
    workers: list[WorkerTotals] | None = Field(
        default=None,
        max_length=MAX_ENTRIES,
        description="Each worker's totals, where there are at most 64.",
    )
    memory: MemoryReport | None = Field(
        default=None, description="Memory of the fullest worker above its baseline."
    )
    storage: StorageReport | None = Field(
        default=None, description="Traffic of all workers with object stores."
    )
