"""What a run did without, because its job allows it: counted, never silent.

The same plain values are in the run's report, the version's manifest and the job's status.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from embertide.telemetry.format import human_share


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
class Omissions:
    """All that a run did without."""

    dropped_edges: list[DroppedEdges] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.dropped_edges)

    @property
    def sentences(self) -> Iterator[str]:
        """A warning for each, for people."""
        yield from (dropped.sentence for dropped in self.dropped_edges)

    def to_json(self) -> dict[str, Any]:
        """As a version's manifest has it; what there is none of is left out."""
        found = {
            "droppedEdges": [asdict(dropped) for dropped in self.dropped_edges],
        }
        return {name: value for name, value in found.items() if value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Omissions:
        """What :meth:`to_json` described."""
        return cls([DroppedEdges(**dropped) for dropped in data.get("droppedEdges", [])])
