"""The bounds of ``spec.output.gate``, applied to what is known of a version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from embertide.facts.telemetry.comparison import Comparison, TypeComparison
from embertide.facts.telemetry.format import human_seconds
from embertide.facts.telemetry.omissions import DroppedEdges
from embertide.spec.gate import Gate
from embertide.spec.matching import percent_share

_AT = "5%"
"""The quantile below which rows moved most: ``minCosine`` is a bound of all others."""


@dataclass(frozen=True)
class Facts:
    """What a gate looks at.

    Attributes:
        dropped: edges that were left out, by relation.
        reference_errors: result -> largest error against the model's reference.
        input_age: seconds since the newest object of all inputs was written; None where the store
            does not say, or nothing asks for it.
    """

    comparison: Comparison
    dropped: list[DroppedEdges] = field(default_factory=list)
    reference_errors: dict[str, float] = field(default_factory=dict)
    input_age: float | None = None


def violations(gate: Gate, facts: Facts) -> list[str]:
    """What is beyond a bound, a sentence for each; [] where the version is within all of them."""
    return [
        *_of_comparison(facts.comparison),
        *(text for of_type in facts.comparison.types for text in _of_type(gate, of_type)),
        *_of_edges(gate, facts.comparison),
        *_of_dropped(gate, facts.dropped),
        *_of_references(gate, facts.reference_errors),
        *_of_age(gate, facts.input_age),
    ]


def _of_comparison(comparison: Comparison) -> Iterator[str]:
    if comparison.state == "failed":
        yield comparison.why
    for name in comparison.gone_types:
        yield f"{_what(name)} no longer published"


def _of_type(gate: Gate, of_type: TypeComparison) -> Iterator[str]:
    before, of = of_type.previous_rows, _of(of_type.name)
    if before is None:
        return
    if of_type.previous_dim != of_type.dim:
        yield f"embeddings{of} have {of_type.dim} dimensions, {of_type.previous_dim} before"
    shares = (
        ("rows removed", of_type.removed_rows, before, "maxRemovedRows", gate.max_removed_rows),
        ("new rows", of_type.new_rows, of_type.rows, "maxNewRows", gate.max_new_rows),
    )
    for what, count, whole, bound, limit in shares:
        share = (count or 0) / max(1, whole)
        if share > percent_share(limit):
            yield f"{what}{of}: {share:.1%}; {bound} is {limit}"
    yield from _of_vectors(gate, of_type)


def _of_vectors(gate: Gate, of_type: TypeComparison) -> Iterator[str]:
    of, rows = _of(of_type.name), max(1, of_type.rows)
    rises = (
        ("zero vectors", of_type.zero_rows, of_type.previous_zero_rows, "maxZeroRows",
         gate.max_zero_rows),
        ("duplicate vectors", of_type.duplicate_rows, of_type.previous_duplicate_rows,
         "maxDuplicateRows", gate.max_duplicate_rows),
    )  # fmt: skip
    for what, count, count_before, bound, limit in rises:
        if count_before is None:
            continue
        share, before = count / rows, count_before / max(1, of_type.previous_rows or 0)
        if share - before > percent_share(limit):
            yield f"{what}{of}: {share:.1%} of the rows, {before:.1%} before; {bound} is {limit}"
    cosine, overlap = of_type.cosine(_AT), of_type.overlap
    if cosine is not None and cosine < gate.min_cosine:
        yield (
            f"cosine with the current version{of}: {cosine:.3f} at the {_AT} of the rows that moved"
            f" most; minCosine is {gate.min_cosine:g}"
        )
    if overlap is not None and overlap < percent_share(gate.min_overlap):
        yield f"nearest neighbours kept{of}: {overlap:.1%}; minOverlap is {gate.min_overlap}"


def _of_edges(gate: Gate, comparison: Comparison) -> Iterator[str]:
    for edges in comparison.edges:
        if edges.previous is None:
            continue
        change = abs(edges.rows - edges.previous) / max(1, edges.previous)
        if change > percent_share(gate.max_edge_change):
            yield (
                f"edges of {edges.name}: {edges.rows:,}, {edges.previous:,} before;"
                f" maxEdgeChange is {gate.max_edge_change}"
            )


def _of_dropped(gate: Gate, dropped: list[DroppedEdges]) -> Iterator[str]:
    for relation in dropped:
        share = relation.edges / max(1, relation.rows)
        if share > percent_share(gate.max_dropped_edges):
            yield (
                f"dropped edges of {relation.relation}: {share:.1%};"
                f" maxDroppedEdges is {gate.max_dropped_edges}"
            )


def _of_references(gate: Gate, errors: dict[str, float]) -> Iterator[str]:
    for name, error in errors.items():
        if gate.max_reference_error is not None and not error <= gate.max_reference_error:
            yield (
                f"error against the reference{_of(name)}: {error:.3g};"
                f" maxReferenceError is {gate.max_reference_error:g}"
            )


def _of_age(gate: Gate, age: float | None) -> Iterator[str]:
    limit = gate.max_input_seconds
    if limit is None:
        return
    if age is None:
        yield "the age of the inputs is not known; leave maxInputAge out for them"
    elif age > limit:
        yield f"the newest input is {human_seconds(age)} old; maxInputAge is {gate.max_input_age}"


def _of(name: str) -> str:
    return f" of {name!r}" if name else ""


def _what(name: str) -> str:
    """A result that is gone; the only one of the only node type has no name."""
    return f"{name!r} is" if name else "the result without a name is"
