"""Moves between workers during the layers: one class for each kind, with what decides its size.

Steps count which of these their operations do; `planning.traffic` has the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from embertide.graph.views import EdgeView
from embertide.grid import AxisName
from embertide.layouts import Layout


@dataclass(frozen=True)
class Landing:
    """A product of the loaded features, or the features, sent to the owners of the rows.

    Attributes:
        x: the features, by the name of their tensor.
        copies: workers that each row goes to, an equal share of its columns to each.
        value_bytes: of a value of it.
    """

    layer: int
    x: str
    width: int
    copies: int
    value_bytes: int


@dataclass(frozen=True)
class Conversion:
    """A tensor from one layout to the other, on the feature axis; labelled ``primitive``.

    Rows under ``gemm``, scores under any other.
    """

    layer: int
    node_type: str
    width: int
    primitive: str = "gemm"
    to: Layout = "rows"


@dataclass(frozen=True)
class Degrees:
    """Out-degrees of a layer graph, whose tile pattern is found for them.

    Attributes:
        weighted: sums of stored weights, if there are any.
    """

    view: EdgeView
    weighted: bool = False


@dataclass(frozen=True)
class TileRows:
    """Unique remote rows of a tile, ``columns`` of this worker each, on the graph axis.

    Rows under ``spmm``, scores under any other ``primitive``.

    Attributes:
        together: the relations for which these rows travel once.
    """

    view: EdgeView
    columns: float
    together: tuple[str, ...]
    primitive: str = "spmm"


@dataclass(frozen=True)
class LoadedRows:
    """Unique rows of the features from those who loaded them, in this worker's columns.

    Attributes:
        x: the features, by the name of their tensor.
        scaled: their holders multiply them by factors, which they look up.
        together: the relations for which these rows travel once.
    """

    view: EdgeView
    x: str
    width: int
    scaled: bool
    together: tuple[str, ...]


@dataclass(frozen=True)
class WholeRows:
    """Unique remote rows with all columns, to where the edges of a sub-range are.

    Attributes:
        together: the relations for which these rows travel once.
    """

    view: EdgeView
    width: int
    together: tuple[str, ...]


@dataclass(frozen=True)
class HeadScores:
    """Numbers of a sub-range, one per head, to the others of the partition.

    Attributes:
        of: of what each is: an edge, or a node of either end.
    """

    layer: int
    relation: str
    heads: int
    primitive: str
    of: Literal["edge", "source", "target"]


@dataclass(frozen=True)
class Statistics:
    """Numbers of each worker, float64, to all others of an axis."""

    layer: int
    axis: AxisName
    numbers: float


Move = Landing | Conversion | Degrees | TileRows | LoadedRows | WholeRows | HeadScores | Statistics
