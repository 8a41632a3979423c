"""What a run did without, because its job allows it: counted, never silent.

The same plain values are in the run's report, the version's manifest and the job's status.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from embertide.facts.telemetry.format import human_share

_SHOWN_DAYS = 10


@dataclass(frozen=True)
class DroppedEdges:
    """Edges of a relation that were left out, since an end is not among the nodes.

    ``rows`` are those of the input, these among them; ``examples`` name a few.
    """

    relation: str
    edges: int
    rows: int
    examples: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """For people."""
        return (
            f"{self.edges:,} of {self.rows:,} edges of {self.relation}"
            f" ({human_share(self.edges, self.rows)}) were dropped, since an end is not among the"
            f" nodes (unknownNodes): {'; '.join(self.examples)}"
        )


@dataclass(frozen=True)
class FilledNodes:
    """Nodes of a type that the model's table of ``rows`` rows has no row of.

    ``missing`` says what they got instead: ``zeros``, or the ``mean`` of the rows.
    """

    node_type: str
    nodes: int
    rows: int
    missing: str

    @property
    def sentence(self) -> str:
        """For people."""
        row = "zeros" if self.missing == "zeros" else "the mean of its rows"
        those = "1 node" if self.nodes == 1 else f"{self.nodes:,} nodes"
        have = "has" if self.nodes == 1 else "have"
        return (
            f"{those} of type {self.node_type!r} {have} no row in the model's table of"
            f" {self.rows:,} rows, and got {row} (missing)"
        )

    def to_json(self) -> dict[str, Any]:
        """As a version's manifest has it."""
        fields = asdict(self)
        return {"nodeType": fields.pop("node_type"), **fields}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FilledNodes:
        """What :meth:`to_json` described."""
        rest = dict(data)
        return cls(rest.pop("nodeType"), **rest)


@dataclass(frozen=True)
class MergedLoops:
    """Nodes of a relation with several self-loops of different weight, of which one counts.

    ``first`` is the id of one of them.
    """

    relation: str
    nodes: int
    first: str

    @property
    def sentence(self) -> str:
        """For people."""
        some = "1 node has" if self.nodes == 1 else f"{self.nodes:,} nodes have"
        return (
            f"{some} several self-loops of different weight in {self.relation}, first node id"
            f" {self.first}: {ONE_LOOP_COUNTS}"
        )


ONE_LOOP_COUNTS = (
    "the one with the largest weight counts, in PyG the last one; write one for each node"
)


@dataclass(frozen=True)
class Omissions:
    """All that a run did without.

    Attributes:
        empty_relations: relation whose input has no objects -> where they were looked for.
        missing_days: location of an input with a window -> days in it that have no objects.
    """

    dropped_edges: list[DroppedEdges] = field(default_factory=list)
    empty_relations: dict[str, str] = field(default_factory=dict)
    missing_days: dict[str, list[str]] = field(default_factory=dict)
    filled_nodes: list[FilledNodes] = field(default_factory=list)
    merged_loops: list[MergedLoops] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.to_json())

    @property
    def sentences(self) -> Iterator[str]:
        """A warning for each, for people."""
        for relation, where in self.empty_relations.items():
            yield f"{relation} is an empty relation: {where} has no objects (optional)"
        for where, days in self.missing_days.items():
            shown = ", ".join(days[:_SHOWN_DAYS]) + (", ..." if len(days) > _SHOWN_DAYS else "")
            some = f"{len(days)} day" + ("" if len(days) == 1 else "s")
            yield f"{where}: {some} without objects, not read (window.missingDays): {shown}"
        yield from (dropped.sentence for dropped in self.dropped_edges)
        yield from (filled.sentence for filled in self.filled_nodes)
        yield from (merged.sentence for merged in self.merged_loops)

    def to_json(self) -> dict[str, Any]:
        """As a version's manifest has it; what there is none of is left out."""
        entries = {
            "droppedEdges": [asdict(dropped) for dropped in self.dropped_edges],
            "emptyRelations": self.empty_relations,
            "missingDays": self.missing_days,
            "filledNodes": [filled.to_json() for filled in self.filled_nodes],
            "mergedLoops": [asdict(merged) for merged in self.merged_loops],
        }
        return {name: value for name, value in entries.items() if value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Omissions:
        """What :meth:`to_json` described."""
        return cls(
            [DroppedEdges(**dropped) for dropped in data.get("droppedEdges", [])],
            data.get("emptyRelations", {}),
            data.get("missingDays", {}),
            [FilledNodes.from_json(filled) for filled in data.get("filledNodes", [])],
            [MergedLoops(**merged) for merged in data.get("mergedLoops", [])],
        )
