"""What a run took over of the rows of the version before, and why it did not take over more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from embertide.plain import Plain

FULL_RUN = "all rows are computed: {why}"


@dataclass
class RefreshFacts(Plain):
    """The same on every worker.

    Attributes:
        mode: incremental: rows that did not change were taken over.
        base: the version whose rows they are; "" of a full run.
        full: the version of the last full run, whose rows this one rests on; "": it is one itself.
        rows: of the results that were computed, of ``all_rows``.
        edges: that the layers went over, of ``all_edges``.
        reached_rows, reached_edges: how many changes may reach, which a tolerance of 0 computes but
            for rows that turn out to have the bits that they had.
        tolerance: of moves that the rows made of a row do not see; 0 of a full run.
        basis: what the layers rest on, if they may be wrong by the tolerance; part of their names.
        unmoved: rows that changes reach and that had not moved by more, computed or not.
        measured: rows of the results that were computed from exact rows, of which ``error`` is
            the largest relative error, and ``max_error`` the largest that is published.
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
    reached_rows: int = 0
    reached_edges: int = 0
    tolerance: float = 0.0
    basis: str = ""
    unmoved: int = 0
    measured: int = 0
    error: float = 0.0
    max_error: float = 0.0
    why: str = ""
    keeps: dict[str, Any] | None = None

    def whole(self, why: str) -> None:
        """All rows are computed; says why."""
        self.mode, self.base, self.full, self.basis = "full", "", "", ""
        self.reached_rows = self.reached_edges = self.measured = 0
        self.tolerance = self.error = self.max_error = 0.0
        self.begin()
        self.why = why

    def begin(self) -> None:
        """Rows are computed from now on."""
        self.rows = self.edges = self.unmoved = 0

    def resumed(self) -> None:
        """An earlier attempt's layers are gone on from: all rows that follow are computed."""
        self.rows, self.edges = self.all_rows, self.all_edges

    @property
    def sentences(self) -> list[str]:
        """For people."""
        if self.mode == "incremental":
            return [
                f"refreshed {self.rows:,} of {self.all_rows:,} rows, over {self.edges:,} of"
                f" {self.all_edges:,} edges; the others are those of version {self.base}",
                *self._tolerated(),
            ]
        return [FULL_RUN.format(why=self.why)] if self.why else []

    def _tolerated(self) -> list[str]:
        if not self.tolerance:
            return []
        return [
            f"{self.unmoved:,} rows of the layers had moved by no more than {self.tolerance:g} of"
            f" their norm, which spared {self.reached_edges - self.edges:,} edges; of"
            f" {self.measured:,} results computed from exact rows none is wrong by more than"
            f" {self.error:.2g} (at most {self.max_error:g})"
        ]
