"""Embeddings compared with a reference, some nodes' vectors from the user's own forward.

A description can fit the weights and still be another model, so a run compares before it publishes.
Each rank compares the rows that it owns; all learn the result.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from embertide.context import RunContext
from embertide.errors import InputError, ModelError
from embertide.facts.telemetry.report import RowError
from embertide.graph.node_ids import NodeIds
from embertide.grid import RowRanges
from embertide.io.readers.reference import (
    Reference,
    ReferenceColumns,
    read_reference,
)
from embertide.io.readers.splits import Split
from embertide.io.versions.keyed import taken
from embertide.spec.nodes import NodeInput

SKIPPED = (
    "the embeddings were not compared with {uri}: with a fanout they are a sample's, not the full"
    " forward's; `embertide check` compares with all neighbours"
)
NONE_CHOSEN = (
    "the embeddings were not compared with {uri}: none of its ids is among spec.inference.targets"
)
_WORST = 5
_ROUNDING = 2.0**-6
"""What rows in bfloat16 may add to the error of a layer over edges: a value is rounded, by at most
2^-8 of itself, as it is read over edges, twice as it changes its layout, and as it is scaled."""


@dataclass(frozen=True)
class Expected:
    """The reference's rows; ``dense`` [n] are their nodes."""

    reference: Reference
    dense: npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far embeddings are from a reference.

    Attributes:
        rows: how many were compared.
        beyond: how many differ by more than the tolerance.
        largest_difference: of any value.
        largest_error: the same, as a share of the reference's largest magnitude.
        worst: (id, its largest error) of the rows that differ most, the worst first.
    """

    uri: str
    rows: int
    beyond: int
    largest_difference: float
    largest_error: float
    tolerance: float
    worst: tuple[tuple[int | str, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @property
    def summary(self) -> str:
        """What differs by how much, in lines."""
        ids = ", ".join(f"{name!r} ({error:.3g})" for name, error in self.worst)
        return (
            f"the embeddings differ from the reference {self.uri} in {self.beyond} of {self.rows}"
            f" rows.\nLargest difference {self.largest_difference:.4g}, which is"
            f" {self.largest_error:.3g} of the reference's largest value; up to"
            f" {self.tolerance:g} is agreement.\nWorst ids: {ids}."
        )


def read_expected(
    ctx: RunContext,
    splits: list[Split],
    node: NodeInput,
    ids: NodeIds,
    columns: ReferenceColumns | None = None,
) -> Expected:
    """The reference's rows and their nodes. Collective: every rank must call.

    Args:
        splits: all of the reference's, on every rank.
        node: the type whose embeddings they are.

    Raises:
        InputError: the reference cannot be read, or names ids that are no nodes.
    """
    reference = read_reference(ctx.storage, splits, node.ids, columns)
    dense = ids.find(reference.ids)
    unknown = np.flatnonzero(dense < 0)
    if len(unknown):
        names = ", ".join(repr(_name(reference, int(at))) for at in unknown[:_WORST])
        more = f" and {len(unknown) - _WORST} more" if len(unknown) > _WORST else ""
        of = f"type {node.name!r}" if len(ctx.job.spec.input.nodes) > 1 else "the graph"
        raise InputError(
            f"{reference.uri}: {len(unknown)} of {len(dense)} ids are not among the {ids.count}"
            f" nodes of {of}: {names}{more}. Write the ids as they are in the features"
        )
    return Expected(reference, dense)


def only_chosen(expected: Expected, chosen: torch.Tensor | None) -> Expected | None:
    """The reference's rows of nodes that are chosen; None where it has none of them.

    Args:
        chosen: [N] bool; None: all are.
    """
    if chosen is None:
        return expected
    reference, there = expected.reference, chosen[torch.from_numpy(expected.dense)].numpy()
    if not there.any():
        return None
    rows = replace(reference, ids=taken(reference.ids, there), values=reference.values[there])
    return Expected(rows, expected.dense[there])


def check_width(expected: Expected, embeddings: int) -> None:
    """Refuse a reference whose vectors cannot be the model's.

    Args:
        embeddings: the columns of what the model gives.

    Raises:
        ModelError: says both widths.
    """
    width = expected.reference.values.shape[1]
    if width != embeddings:
        raise ModelError(
            f"the vectors of {expected.reference.uri} have {width} columns, but the model gives"
            f" {embeddings}: the description says another model, or they are another"
            " layer's"
        )


def compare(
    ctx: RunContext,
    expected: Expected,
    ranges: RowRanges,
    embeddings: torch.Tensor,
    tolerance: float,
    chosen: torch.Tensor | None = None,
) -> Agreement:
    """Compare our rows; all ranks get the same result. Collective: every rank must call.

    Args:
        expected: of nodes whose rows are there.
        embeddings: [N/(P*M), D'] of our sub-range; where some rows are chosen only these.
        tolerance: as a share of the reference's largest magnitude.
        chosen: [N/(P*M)] bool, the rows that are there; None: all.
    """
    reference = expected.reference
    first, last = ranges.worker(ctx.grid.rank)
    ours = np.flatnonzero((expected.dense >= first) & (expected.dense < last))
    staging = ctx.exchange.staging
    rows_of_ours = torch.from_numpy(expected.dense[ours] - first)
    if chosen is not None:
        rows_of_ours = (torch.cumsum(chosen, 0) - 1)[rows_of_ours]
    wanted = staging.indices(rows_of_ours, embeddings)
    found = staging.download(embeddings[wanted])
    differences = np.abs(found.double().numpy() - reference.values[ours])
    # NaN is no agreement.
    mine = np.nan_to_num(differences.max(axis=1, initial=0.0), nan=np.inf)
    worst = np.argsort(-mine, kind="stable")[:_WORST]
    largest = float(np.abs(reference.values).max())
    gathered = ctx.exchange.all_objects(
        (
            int((mine > tolerance * largest).sum()),
            [(_name(reference, int(ours[at])), float(mine[at])) for at in worst],
        )
    )
    rows = sorted((row for _, some in gathered for row in some), key=lambda row: -row[1])
    return Agreement(
        uri=reference.uri,
        rows=len(expected.dense),
        beyond=sum(beyond for beyond, _ in gathered),
        largest_difference=rows[0][1],
        largest_error=rows[0][1] / largest,
        tolerance=tolerance,
        worst=tuple((name, value / largest) for name, value in rows[:_WORST]),
    )


def allowed_error(tolerance: float, rows: str, layers: int) -> float:
    """The largest error of embeddings that agree, as a share of the reference's largest value.

    Args:
        tolerance: the model's, for float32.
        rows: the manifest's ``inference.rows``.
        layers: layer graphs of the program.
    """
    return tolerance if rows == "float32" else tolerance + layers * _ROUNDING


def row_error(compared: Collection[dict[str, Any]], rows: str) -> RowError | None:
    """What rows of another type than float32 made of the embeddings; None: not known.

    Args:
        compared: the agreement of each node type that has a reference.
        rows: the manifest's ``inference.rows``.
    """
    if rows == "float32" or not compared:
        return None
    return RowError(
        rows=sum(found["rows"] for found in compared),
        largest_difference=max(found["largest_difference"] for found in compared),
        largest_error=max(found["largest_error"] for found in compared),
    )


def compare_with_reference(
    ctx: RunContext,
    expected: Expected,
    ranges: RowRanges,
    embeddings: torch.Tensor,
    tolerance: float,
    chosen: torch.Tensor | None = None,
) -> dict[str, Any]:
    """How far embeddings are from a reference, for a version's manifest.

    Collective: every rank must call.

    Raises:
        ModelError: they differ; nothing may be published.
    """
    agreement = compare(ctx, expected, ranges, embeddings, tolerance, chosen)
    refuse_difference(agreement)
    return agreement.to_json()


def refuse_difference(agreement: Agreement) -> None:
    """Refuse to publish what differs from the reference.

    Raises:
        ModelError: how much, where, and how to find the cause.
    """
    if agreement.beyond:
        raise ModelError(
            f"{agreement.summary}\nNothing was published. `embertide check` with --against"
            f" {agreement.uri} names the first layer that can differ. Where the reference is"
            " another model's, write it again."
        )


def _name(reference: Reference, at: int) -> int | str:
    """The id as it is in the files."""
    ids = reference.ids
    return int(ids[at]) if isinstance(ids, np.ndarray) else str(ids[at].as_py())
