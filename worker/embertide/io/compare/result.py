"""The sum of all shares as a comparison, for manifest, report and status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from threadpoolctl import threadpool_limits

from embertide.facts.telemetry.comparison import COMPARED, Comparison, RowsRead, TypeComparison
from embertide.io.compare.base import Base, BaseType
from embertide.io.compare.rows import count_duplicates
from embertide.io.compare.sample import Pairs
from embertide.io.compare.share import Moves, Share
from embertide.spec.result_names import label_of


@dataclass(frozen=True)
class TypeShare:
    """The sum of the shares of a result.

    Attributes:
        key: of the result.
    """

    key: str
    dim: int
    share: Share


def put_together(
    base: Base, types: list[TypeShare], read: dict[str, int], *, same_model: bool
) -> Comparison:
    """The comparison; ``failed`` where the ranges together miss rows of the previous version.

    Args:
        read: edge type -> rows of its input.
    """
    edges = [RowsRead(name, rows, base.read.get(name)) for name, rows in read.items()]
    edges += [RowsRead(name, 0, rows) for name, rows in base.read.items() if name not in read]
    why = _missing_rows(base, types)
    if why:
        types = [_alone(of_type) for of_type in types]
    return Comparison(
        state="failed" if why else base.state,
        why=why or base.why,
        previous=base.version,
        same_model=same_model,
        types=[_of_type(of_type, None if why else base) for of_type in types],
        gone_types=sorted(
            label_of(key) for key in set(base.types).difference(of_type.key for of_type in types)
        ),
        edges=edges,
    )


def _alone(of_type: TypeShare) -> TypeShare:
    of_type.share.moves = None
    return of_type


def _missing_rows(base: Base, types: list[TypeShare]) -> str:
    """What is wrong where rows of the previous version were not seen, or "": each counts once."""
    for of_type in types if base.state == COMPARED else ():
        moves = of_type.share.moves
        if moves is not None and moves.previous != base.types[of_type.key].rows:
            return (
                f"not compared with {base.version}: its parts have {moves.previous} rows where"
                f" their ids say that they are, its manifest has {base.types[of_type.key].rows}"
            )
    return ""


def _of_type(of_type: TypeShare, base: Base | None) -> TypeComparison:
    share, total = of_type.share, of_type.share.rows
    alone: dict[str, Any] = {
        "name": label_of(of_type.key),
        "rows": total,
        "dim": of_type.dim,
        "zero_rows": share.zeros,
        "not_finite_rows": share.not_finite,
        "duplicate_rows": count_duplicates(share.duplicates, total),
        "norms": share.norms.describe(),
    }
    before = base.types.get(of_type.key) if base is not None and base.state == COMPARED else None
    if before is None:
        return TypeComparison(**alone)
    compared = _other_ids(share, before) if share.moves is None else _moved(of_type, share.moves)
    return TypeComparison(
        **alone,
        previous_rows=before.rows,
        previous_dim=before.dim,
        previous_duplicate_rows=before.duplicate_rows,
        **compared,
    )


def _other_ids(share: Share, before: BaseType) -> dict[str, Any]:
    """Ids of another kind: no row of one version is in the other."""
    return {
        "new_rows": share.rows,
        "removed_rows": before.rows,
        "changed_rows": 0,
        "unchanged_rows": 0,
    }


def _moved(of_type: TypeShare, moves: Moves) -> dict[str, Any]:
    sample, moves.pairs = Pairs.join(moves.pairs), []
    # Products this small take a thread longer to share than to compute.
    with threadpool_limits(limits=1, user_api="blas"):
        overlap, residual = sample.overlap(), sample.residual()
    return {
        "previous_zero_rows": moves.previous_zeros,
        "new_rows": of_type.share.rows - moves.matched,
        "removed_rows": moves.previous - moves.matched,
        "changed_rows": moves.matched - moves.unchanged,
        "unchanged_rows": moves.unchanged,
        "moved": moves.distances.describe() if moves.distances.counts.any() else None,
        "overlap": overlap,
        "residual": residual,
        "sample_rows": len(sample),
    }
