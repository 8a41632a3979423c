"""What a run of some nodes alone computed, of what a run of all would have."""

from __future__ import annotations

from dataclasses import dataclass

from embertide.plain import Plain


@dataclass
class ChosenFacts(Plain):
    """The same on every worker.

    Attributes:
        rows: nodes that are wanted, of ``all_rows``; 0: all are.
        edges: that the layers went over, of ``all_edges``; 0: unknown.
        why: why all rows were computed, though some are wanted; "" where they were not.
    """

    rows: int = 0
    all_rows: int = 0
    edges: int = 0
    all_edges: int = 0
    why: str = ""

    @property
    def sentences(self) -> list[str]:
        """For people."""
        if not self.rows:
            return []
        over = f", over {self.edges:,} of {self.all_edges:,} edges" if self.all_edges else ""
        why = f"; all rows were computed: {self.why}" if self.why else over
        return [f"{self.rows:,} of {self.all_rows:,} nodes, as inference.targets names them{why}"]
