"""The score of a pair of nodes: a few lines over the rows of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from embertide.errors import ModelError
from embertide.program.steps.ops import RESULT, RowShapes, run, shapes_of, width_of

BATCH_VALUES = 1 << 22
"""Numbers of the pairs whose rows are fetched at a time."""
DOT = ("v0 = mul(s, t)", "v1 = sum(v0, 1)", "out = reshape(v1, [1])")
_UNIT = "{1} = mul({0}, {0})", "{2} = sum({1}, 1)", "{3} = sqrt({2})", "{4} = clamp({3}, min=1e-08)"
COSINE = (
    *(line.format("s", "s1", "s2", "s3", "s4") for line in _UNIT),
    *(line.format("t", "t1", "t2", "t3", "t4") for line in _UNIT),
    *("v0 = mul(s, t)", "v1 = sum(v0, 1)", "v2 = div(v1, s4)", "v3 = div(v2, t4)"),
    "out = reshape(v3, [1])",
)
"""0 where a row is zero, as torch's is."""
_BUILT_IN = {"dot": DOT, "cosine": COSINE}


@dataclass(frozen=True)
class Decoder:
    """Lines that make ``out`` of the rows of a pair's nodes.

    Lines read the first node's row as ``s``, the second one's as ``t``, and the parameters by their
    names; :mod:`embertide.program.steps.ops` has what they may be.

    Attributes:
        source, destination: columns of ``s`` and ``t``.
    """

    lines: tuple[str, ...]
    source: int
    destination: int
    params: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """Numbers that a pair gets.

        Raises:
            ModelError: the lines do not fit the columns and parameters.
        """
        return width_of(self._shapes)

    @property
    def values(self) -> int:
        """Numbers that the lines hold for a pair."""
        return self._shapes.values

    @property
    def _shapes(self) -> RowShapes:
        return shapes_of(self.lines, {"s": self.source, "t": self.destination}, self.params)

    def score(self, source: Tensor, destination: Tensor) -> Tensor:
        """[n, width] of the rows [n, D] and [n, D'] of the nodes of n pairs."""
        values = {"s": source, "t": destination}
        params = {name: param.to(source) for name, param in self.params.items()}
        return run(self.lines, values | params)[RESULT]


def built_in(name: str, source: int, destination: int) -> Decoder:
    """The dot product or the cosine of two rows.

    Raises:
        ModelError: the rows have different lengths.
    """
    if source != destination:
        raise ModelError(
            f"spec.input.pairs.score is {name}, but the rows of both nodes have {source} and"
            f" {destination} columns; score needs as many of each, or a model with a decoder"
        )
    return Decoder(_BUILT_IN[name], source, destination)
