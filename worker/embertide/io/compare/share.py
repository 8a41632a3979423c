"""What one worker, or one part, knows of a comparison; the shares of all are added up."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.io.compare.histogram import Histogram
from embertide.io.compare.rows import Duplicates, RowFacts, find_duplicates
from embertide.io.compare.sample import Pairs


@dataclass
class Moves:
    """The rows of a range of keys beside those of the previous version.

    Attributes:
        previous: rows of the previous version within the range.
        matched: of these, those whose id both versions have.
        unchanged: of the matched ones, those with the same bits.
        previous_zeros: zero vectors among ``previous``.
        distances: of 1 - cosine of the matched rows; empty where vectors are not comparable.
        pairs: the sample's rows.
    """

    pairs: list[Pairs]
    previous: int = 0
    matched: int = 0
    unchanged: int = 0
    previous_zeros: int = 0
    distances: Histogram = field(default_factory=Histogram)

    def add(self, other: Moves) -> None:
        """Count another range's rows, too."""
        for name in ("previous", "matched", "unchanged", "previous_zeros"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.distances.merge(other.distances)
        self.pairs = [*self.pairs, *other.pairs]


@dataclass
class Share:
    """Some rows of one node type, by themselves and beside the previous version's.

    Attributes:
        moves: None where there is nothing to compare with.
    """

    rows: int
    zeros: int
    not_finite: int
    norms: Histogram
    duplicates: list[Duplicates]
    moves: Moves | None = None

    @classmethod
    def of(cls, facts: RowFacts, total: int, moves: Moves | None) -> Share:
        """The share of rows that were looked at; ``total`` are those of all workers."""
        norms = Histogram()
        norms.add(facts.norms)
        duplicates = [find_duplicates(facts, total)]
        return cls(len(facts.norms), facts.zeros, facts.not_finite, norms, duplicates, moves)

    def add(self, other: Share) -> None:
        """Count another one's rows, too."""
        self.rows += other.rows
        self.zeros += other.zeros
        self.not_finite += other.not_finite
        self.norms.merge(other.norms)
        self.duplicates = [*self.duplicates, *other.duplicates]
        if self.moves is not None and other.moves is not None:
            self.moves.add(other.moves)

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` is the way back."""
        return {
            "rows": self.rows,
            "zeros": self.zeros,
            "not_finite": self.not_finite,
            "norms": self.norms.counts.tolist(),
            "duplicates": [
                [part.rows, _pack(part.prints), _pack(part.counts)] for part in self.duplicates
            ],
            "moves": None if self.moves is None else _moves_to_json(self.moves),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Share:
        """What :meth:`to_json` described."""
        duplicates = [
            Duplicates(rows, _unpack(prints), _unpack(counts))
            for rows, prints, counts in data["duplicates"]
        ]
        moves = data["moves"]
        return cls(
            rows=data["rows"],
            zeros=data["zeros"],
            not_finite=data["not_finite"],
            norms=Histogram(np.array(data["norms"], np.int64)),
            duplicates=duplicates,
            moves=None if moves is None else _moves_from_json(moves),
        )


def _moves_to_json(moves: Moves) -> dict[str, Any]:
    return {
        "previous": moves.previous,
        "matched": moves.matched,
        "unchanged": moves.unchanged,
        "previous_zeros": moves.previous_zeros,
        "distances": moves.distances.counts.tolist(),
        "pairs": [[_pack(pair.draws), _pack(pair.new), _pack(pair.old)] for pair in moves.pairs],
    }


def _moves_from_json(data: dict[str, Any]) -> Moves:
    pairs = [Pairs(*map(_unpack, packed)) for packed in data["pairs"]]
    distances = Histogram(np.array(data["distances"], np.int64))
    return Moves(**{**data, "pairs": pairs, "distances": distances})


def _pack(values: npt.NDArray[Any]) -> list[Any]:
    """An array as its type, shape and bytes: JSON has no binary values."""
    data = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
    return [values.dtype.str, list(values.shape), data]


def _unpack(packed: list[Any]) -> npt.NDArray[Any]:
    dtype, shape, data = packed
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape)
