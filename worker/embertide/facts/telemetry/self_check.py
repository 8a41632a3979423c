"""What a run's self-check gave, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from embertide.plain import Plain

CHECKED, OFF = "checked", "off"
"""Values of :attr:`SelfCheck.state`."""
OUT_DEGREES = "out-degrees"
"""Value of :attr:`CheckedRows.makes`: numbers of nodes that are counted again, and no rows."""


@dataclass(frozen=True, kw_only=True)
class CheckedRows:
    """Rows of one node type that one part of a layer made.

    Attributes:
        layer: the layer graph, from 0.
        node_type: "" in a graph with one.
        makes: the tensor, as ``embertide show MODEL --steps`` names it.
        rows: how many were computed again, on all workers.
        nodes: of which they were drawn.
        in_edges: of these rows.
        largest_error: of any value, as a share of the largest magnitude of the rows.
        beyond: rows that differ by more than they may.
        overflowed: rows that differ because float32 overflows.
    """

    layer: int
    node_type: str
    makes: str
    rows: int
    nodes: int
    in_edges: int
    largest_error: float
    beyond: int
    overflowed: int = 0

    @property
    def chance(self) -> float:
        """The probability that one changed row in a thousand would have been among them."""
        return 1.0 if self.rows >= self.nodes else 1.0 - 0.999**self.rows


@dataclass(frozen=True)
class Fault:
    """A value that differs by more than it may."""

    layer: int
    makes: str
    node_type: str
    id: str
    column: int
    value: float
    expected: float
    allowed: float

    def __str__(self) -> str:
        of_type = f"{self.node_type} " if self.node_type else ""
        where = f"layer {self.layer + 1}, {self.makes!r}, node {of_type}{self.id}"
        values = f"{self.value:.9g}, expected {self.expected:.9g}"
        return f"{where}, column {self.column}: {values}, may differ by {self.allowed:.3g}"


@dataclass(frozen=True, kw_only=True)
class SelfCheck(Plain):
    """Rows of every layer computed a second time, in float64.

    Attributes:
        state: ``checked``, or ``off``.
        seconds: that it took on the slowest worker.
        tolerance: as a share of a column's largest magnitude.
        checked: one entry for each tensor that was compared.
        skipped: what was not computed again, and why, in sentences.
        faults: the values that differ most; those of a version that was published are none.
        overflows: the same of those that differ because float32 overflows.
    """

    state: str
    seconds: float = 0.0
    tolerance: float = 0.0
    checked: list[CheckedRows] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    overflows: list[Fault] = field(default_factory=list)

    @property
    def largest_errors(self) -> dict[int, float]:
        """Layer -> the largest error of its rows."""
        errors: dict[int, float] = {}
        for one in self.checked:
            errors[one.layer] = max(errors.get(one.layer, 0.0), one.largest_error)
        return dict(sorted(errors.items()))

    @property
    def rows(self) -> int:
        """Rows that were computed again, of all layers."""
        return sum(self.rows_of(layer) for layer in self.largest_errors)

    def rows_of(self, layer: int) -> int:
        """Rows of a layer that were computed again, of all its tensors."""
        rows = [one for one in self.checked if one.makes != OUT_DEGREES]
        return sum(one.rows for one in rows if one.layer == layer)
