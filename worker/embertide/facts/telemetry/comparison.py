"""How a version differs from the one that readers had before it, as plain data.

The same values are in the version's manifest, the run's report and, cut down, in the job's status.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from embertide.facts.telemetry.format import human_bytes, human_share
from embertide.plain import Plain

COMPARED = "compared"
"""Value of :attr:`Comparison.state`; the others say why there is nothing to compare with."""


@dataclass(frozen=True)
class Distribution:
    """Values by magnitude, in bins of equal width on a logarithmic scale.

    Attributes:
        quantiles: share of the values, such as ``"5%"`` -> the value that so many do not exceed.
        first: log10 of the lower end of the first bin.
        per_decade: bins between two powers of ten.
        below: how many values are less than the first bin, zero among them.
        counts: of each bin; empty bins at both ends are left out.
    """

    quantiles: dict[str, float]
    first: float
    per_decade: int
    below: int
    counts: list[int]


@dataclass(frozen=True, kw_only=True)
class DeltaSize:
    """How large the delta of a result is.

    Attributes:
        upserts, deletes: rows to replace or add, and ids to remove.
        size: bytes of its parts, with the lengths of paths that the next delta needs.
        why: there is none; "" where there is.
    """

    upserts: int = 0
    deletes: int = 0
    size: int = 0
    why: str = ""

    def sentence(self, rows: int) -> str:
        """For people; ``rows`` are those of the version."""
        if self.why:
            return f"no delta: {self.why}"
        return (
            f"delta {self.upserts:,} rows ({human_share(self.upserts, rows)}) and {self.deletes:,}"
            f" ids, {human_bytes(self.size)}"
        )

    @classmethod
    def of(cls, delta: dict[str, Any]) -> DeltaSize:
        """From a delta as the manifest has it."""
        if "why" in delta:
            return cls(why=delta["why"])
        parts = [delta[name] for name in ("upsert", "delete", "paths")]
        return cls(
            upserts=parts[0]["rows"],
            deletes=parts[1]["rows"],
            size=sum(part["size"] for part in parts),
        )


@dataclass(frozen=True, kw_only=True)
class TypeComparison:
    """The rows of one result, beside those of the previous version.

    Attributes:
        name: its label (:mod:`embertide.spec.result_names`): the node type, the name of the result
            where the model has several, or both; "" of the only one.
        dim: D, the length of an embedding.
        zero_rows: rows whose values are all zero.
        not_finite_rows: rows with NaN or an infinity; a run publishes none.
        duplicate_rows: rows whose vector another row has too, zero vectors aside; beyond about
            130,000 rows an estimate.
        norms: of the rows' lengths.
        previous_rows: None where there is nothing to compare with; so are the fields after it.
        new_rows, removed_rows: whose id only this version or only the previous one has.
        changed_rows, unchanged_rows: whose id both have, by the bits of their values.
        moved: of 1 - cosine between a row and its previous one; None also where another model or
            another dimension makes vectors incomparable.
        overlap: share of the 10 nearest neighbours that a row keeps, within the sample.
        residual: share of the previous sample's variance that no rotation and scaling of the new
            one explains (orthogonal Procrustes).
        sample_rows: rows of the sample, the same ids every time.
        delta: how large the delta is; None where the job wants none.
    """

    name: str
    rows: int
    dim: int
    zero_rows: int
    not_finite_rows: int
    duplicate_rows: int
    norms: Distribution
    previous_rows: int | None = None
    previous_dim: int | None = None
    previous_zero_rows: int | None = None
    previous_duplicate_rows: int | None = None
    new_rows: int | None = None
    removed_rows: int | None = None
    changed_rows: int | None = None
    unchanged_rows: int | None = None
    moved: Distribution | None = None
    overlap: float | None = None
    residual: float | None = None
    sample_rows: int = 0
    delta: DeltaSize | None = None

    def cosine(self, share: str) -> float | None:
        """The cosine with the previous row that so many rows, such as ``"5%"``, do not exceed."""
        if self.moved is None:
            return None
        rest = f"{100 - int(share.removesuffix('%'))}%"
        return 1.0 - self.moved.quantiles[rest] if rest in self.moved.quantiles else None


@dataclass(frozen=True)
class RowsRead:
    """Rows that were read of an edge type's input, now and for the previous version."""

    name: str
    rows: int
    previous: int | None


@dataclass(frozen=True, kw_only=True)
class Comparison(Plain):
    """A version beside the previous one.

    Attributes:
        state: ``compared``, ``first`` (there was no version), ``failed`` or ``off``.
        why: of ``failed``, in a sentence.
        previous: the version that was current when this one was computed; "" without one.
        same_model: whether both were computed with the same model, so that their vectors share one
            space.
        seconds: that comparing took, on the slowest worker.
        types: one entry for each result that is published.
        gone_types: labels of results that the previous version has and this one does not.
        edges: one entry for each edge type that was read.
    """

    state: str
    why: str = ""
    previous: str = ""
    same_model: bool = True
    seconds: float = 0.0
    types: list[TypeComparison] = field(default_factory=list)
    gone_types: list[str] = field(default_factory=list)
    edges: list[RowsRead] = field(default_factory=list)

    @property
    def sentences(self) -> list[str]:
        """For people, a line for each result."""
        if self.state != COMPARED:
            return [self.why] if self.why else []
        return [_sentence(of_type, self.previous) for of_type in self.types]


def _sentence(of_type: TypeComparison, previous: str) -> str:
    assert of_type.new_rows is not None
    assert of_type.changed_rows is not None
    name = f"{of_type.name}: " if of_type.name else ""
    counts = (
        f"{of_type.new_rows:,} new, {of_type.removed_rows:,} removed, {of_type.changed_rows:,}"
        f" changed ({human_share(of_type.changed_rows, of_type.rows)})"
    )
    cosine, overlap = of_type.cosine("5%"), of_type.overlap
    likeness = [
        *([] if cosine is None else [f"cosine {cosine:.4f} at the 5% that moved most"]),
        *([] if overlap is None else [f"neighbours kept {overlap:.1%}"]),
    ]
    sizes = [] if of_type.delta is None else [of_type.delta.sentence(of_type.rows)]
    return f"{name}{'; '.join([f'{counts} since {previous}', *likeness, *sizes])}"


def with_deltas(comparison: Comparison, deltas: dict[str, dict[str, Any]]) -> Comparison:
    """The comparison with the sizes of deltas, which are by the labels of results."""
    sizes = {label: DeltaSize.of(delta) for label, delta in deltas.items()}
    types = [
        dataclasses.replace(of_type, delta=sizes.get(of_type.name)) for of_type in comparison.types
    ]
    return dataclasses.replace(comparison, types=types)
