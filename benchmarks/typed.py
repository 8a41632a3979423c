"""Whole commands on a graph of three node types and six relations: Embertide against DGL.

    .venv/bin/python -m benchmarks.typed --scale 20 --grid 1x1 2x1

RGCN and HGT, three layers, on the files of :mod:`benchmarks.typed_dataset`. What the figures mean,
and what makes them fair, is as in :mod:`benchmarks.end_to_end`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import ClassVar

from benchmarks.peers import ours
from benchmarks.typed_dataset import CONVS, SHARES, make
from benchmarks.whole_runs import Case, Comparison, compare_cases, options

PEERS = ["dgl_typed"]


class TypedCase(Case):
    """One typed graph and model."""

    write_job: ClassVar[Callable[..., Path]] = staticmethod(ours.write_typed_job)
    types: ClassVar[tuple[str | None, ...]] = tuple(SHARES)


def main() -> None:
    """Measure all asked-for cases."""
    given = options(__doc__, CONVS, ["1x1", "2x1"]).parse_args()

    def comparison(scale: int, conv: str) -> Comparison:
        def case(folder: Path, work: Path) -> Case:
            data = make(folder / f"typed-{scale}", scale=scale)
            return TypedCase(data, work, conv, "npy", given.settle)

        return Comparison({"scale": scale, "conv": conv}, PEERS, case)

    asked = product(given.scale, given.conv)
    compare_cases("typed", given, [comparison(*one) for one in asked])


if __name__ == "__main__":
    main()
