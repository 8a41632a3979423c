"""What a run took over of the rows of the version before, and why it did not take over more."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

FULL_RUN = "all rows are computed: {why}"


@dataclass
class RefreshFacts:
    """The same on every worker.

    Attributes:
        mode: incremental: rows that did not change were taken over.
        base: the version whose rows they are; "" of a full run.
        full: the version of the last full run, whose rows this one rests on; "": it is one itself.
        rows: of the results that were computed, of ``all_rows``.
        edges: that the layers went over, of ``all_edges``.
        why: why this is a full run; "" where nothing was kept to go on from, or it is none.
        keeps: where and how the rows of the version are kept for the next run; None: they are not.
    """

    mode: Literal["full", "incremental"] = "full"
    base: str = ""
    full: str = ""
    rows: int = 0
    all_rows: int = 0
    edges: int = 0
    all_edges: int = 0
    why: str = ""
    keeps: dict[str, Any] | None = None

    def whole(self, why: str) -> None:
        """All rows are computed; says why."""
        self.mode, self.base, self.full, self.rows, self.edges = "full", "", "", 0, 0
        self.why = why

    def resumed(self) -> None:
        """An earlier attempt's layers are gone on from: all rows that follow are computed."""
        self.rows, self.edges = self.all_rows, self.all_edges

    @property
    def sentences(self) -> list[str]:
        """For people."""
        if self.mode == "incremental":
            return [
                f"refreshed {self.rows:,} of {self.all_rows:,} rows, over {self.edges:,} of"
                f" {self.all_edges:,} edges; the others are those of version {self.base}"
            ]
        return [FULL_RUN.format(why=self.why)] if self.why else []

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` is the way back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RefreshFacts:
        """What :meth:`to_json` described."""
        return cls(**data)
