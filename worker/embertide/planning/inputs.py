"""What a run will read, listed and cut once by one process before any worker starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from embertide.errors import ManifestError, ModelError
from embertide.grid import check_fits
from embertide.readers.edges import split_edges
from embertide.readers.feature_schema import FeatureSchema, feature_schema
from embertide.readers.features import split_features
from embertide.readers.nodes import split_nodes
from embertide.readers.reference import reference_uri, split_reference
from embertide.readers.splits import Split
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.storage.protocol import Storage

if TYPE_CHECKING:
    # Importing it imports torch, which those who only list inputs need not wait for.
    from embertide.steps import Program


@dataclass(frozen=True)
class Inputs:
    """Every input object cut into splits, in a fixed order.

    Attributes:
        schema: of the features, from the first object's metadata.
        reference: vectors that the embeddings are held against; none where the model has none.
    """

    edges: list[Split]
    features: list[Split]
    table: list[Split]
    schema: FeatureSchema
    reference: list[Split] = field(default_factory=list)

    @property
    def width(self) -> int:
        """Values in a row of the features."""
        return self.schema.width

    @property
    def feature_rows(self) -> int:
        """Rows of all feature objects."""
        return sum(split.stop - split.start for split in self.features)

    def objects(self) -> list[dict[str, Any]]:
        """Each input object once: kind, uri, size in bytes, ETag."""
        found: dict[str, dict[str, Any]] = {}
        for kind, splits in (
            ("edges", self.edges),
            ("features", self.features),
            ("nodes", self.table),
            ("reference", self.reference),
        ):
            for split in splits:
                found[split.uri] = _entry(kind, split.uri, split.object_size, split.etag)
                if split.ids_uri is not None:
                    found[split.ids_uri] = _entry(
                        "ids", split.ids_uri, split.ids_size, split.ids_etag
                    )
        scaling = self.schema.scaling
        if scaling is not None and scaling.source is not None:
            source = scaling.source
            found[source.uri] = _entry("scaling", source.uri, source.size, source.etag)
        return list(found.values())

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` is the way back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Inputs:
        """What :meth:`to_json` described."""
        edges, features, table, reference = (
            [Split.from_json(split) for split in data[name]]
            for name in ("edges", "features", "table", "reference")
        )
        schema = FeatureSchema.from_json(data["schema"])
        return cls(edges, features, table, schema, reference)


def _entry(kind: str, uri: str, size: int, etag: str) -> dict[str, Any]:
    return {"kind": kind, "uri": uri, "size": size, "etag": etag}


def list_inputs(storage: Storage, job: EmbeddingJob) -> Inputs:
    """List and cut all inputs of a job.

    Raises:
        ManifestError: more than one node or edge type, or a scaling of another width.
        StorageError, InputError: an input is missing, refused or malformed.
    """
    given = job.spec.input
    problems = [
        (
            f"spec.input.{name}",
            f"has {len(types)} {name[:-1]} types ({', '.join(type.name for type in types)}); runs"
            " take exactly one so far, leave the others out",
        )
        for name, types in (("edges", given.edges), ("nodes", given.nodes))
        if len(types) > 1
    ]
    if problems:
        raise ManifestError(problems)
    edge, node = given.edges[0], given.nodes[0]
    edges = split_edges(storage, edge, ids=node.ids)
    schema = feature_schema(storage, node.features)
    return Inputs(
        edges,
        split_features(storage, node.features, ids=node.ids, schema=schema),
        split_nodes(storage, node.table, ids=node.ids) if node.table else [],
        schema,
        _reference(storage, job),
    )


def _reference(storage: Storage, job: EmbeddingJob) -> list[Split]:
    """The model's own reference, if it has one."""
    uri = reference_uri(job.spec.model.uri)
    if storage.stat(uri) is None:
        return []
    return split_reference(storage, uri, job.spec.input.nodes[0].ids)


def check_model(
    job: EmbeddingJob, width: int, program: Program, grid: GridShape, nodes: int
) -> None:
    """Refuse a model that does not fit the features, the fanout or the grid.

    Args:
        width: columns of the features.

    Raises:
        ModelError: another input width, or another number of layers than fanouts.
        GridError: more workers than nodes, or than a tensor of the model has columns.
    """
    features, model = job.spec.input.nodes[0].features.uri, job.spec.model.uri
    if program.input_width != width:
        raise ModelError(
            f"{features}: the features have {width} columns, but the model {model} takes"
            f" {program.input_width}; give the features or the model that belong together"
        )
    fanout = job.spec.inference.fanout
    if fanout != "full" and len(fanout) != program.layers:
        raise ModelError(
            f"spec.inference.fanout is {fanout}, which has {len(fanout)} entries, but the model"
            f" {model} has {program.layers} layers that read edges; give one number for each layer"
            " of these, or full"
        )
    check_fits(grid, nodes, program.sliced_widths)
