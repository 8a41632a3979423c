"""A version's rows in a layout: normalised, of another element type, with ids of another type.

Nothing is changed in silence: a value or an id that the layout cannot hold is an error that names
its row, and rows that are zero vectors are counted and listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from embertide.edge.indexes.layout import Layout, Limits
from embertide.errors import OutputError
from embertide.io.versions.rows import Batch
from embertide.kernels.arrow import to_arrow

_INT8_MOST = 127
_INTEGER = r"^(0|-?[1-9][0-9]*)$"
"""Texts that are the decimal form of one integer each, so that no two of them become the same."""


@dataclass(frozen=True)
class Shaped:
    """Some rows as they are written.

    Attributes:
        ids: arrow array [n] of int64 or large_string.
        values: [n, D] of the layout's element type.
        zero_ids: arrow array of the ids of the zero vectors among the rows that came in.
    """

    ids: Any
    values: npt.NDArray[Any]
    zero_ids: Any


class Shaper:
    """Lays out rows.

    Args:
        scale: of int8 vectors; as the layout has it for others.

    Raises:
        OutputError: by :meth:`shape`, where a row does not fit; names its id.
    """

    def __init__(self, layout: Layout, limits: Limits, scale: float | None = None) -> None:
        self._layout, self._limits, self._scale = layout, limits, scale

    def shape(self, batch: Batch) -> Shaped:
        """The rows of a batch as they are written."""
        ids = _id_array(batch[0])
        values = self._converted(ids, self.directions(batch[1]))
        zeros: npt.NDArray[np.bool_] = np.logical_not(values.any(axis=1))
        ids = self.shape_ids(ids)
        zero_ids = ids.filter(pa.array(zeros))
        if zeros.any() and self._layout.zero_rows != "keep":
            ids, values = self._without_zeros(ids, values, zeros)
        return Shaped(ids, values, zero_ids)

    def shape_ids(self, ids: Any) -> Any:
        """Ids alone as they are written."""
        return self._checked(_typed(_id_array(ids), self._layout.ids))

    def directions(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """[n, D] divided by their L2 norms where the layout asks for it; zero vectors stay."""
        if not self._layout.normalize:
            return values
        exact = values.astype(np.float64)
        norms = np.sqrt(np.einsum("ij,ij->i", exact, exact))
        divided = np.divide(exact, norms[:, None], out=exact, where=norms[:, None] > 0)
        units: npt.NDArray[np.float32] = divided.astype(np.float32)
        return units

    def _converted(self, ids: Any, values: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        if self._layout.vectors == "float32":
            return np.ascontiguousarray(values)
        if self._layout.vectors == "float16":
            with np.errstate(over="ignore"):
                halves = values.astype(np.float16)
            self._refuse(
                ids, values, np.isinf(halves), f"float16 ends at {np.finfo(np.float16).max:g}"
            )
            return halves
        assert self._scale is not None
        steps = np.rint(values.astype(np.float64) / self._scale)
        most = f"int8 with the scale {self._scale:g} ends at {self._scale * _INT8_MOST:g}"
        self._refuse(ids, values, np.abs(steps) > _INT8_MOST, most)
        return steps.astype(np.int8)

    def _refuse(
        self, ids: Any, values: npt.NDArray[Any], beyond: npt.NDArray[np.bool_], why: str
    ) -> None:
        if not beyond.any():
            return
        row, column = np.argwhere(beyond)[0]
        raise OutputError(
            f"the embedding of node {ids[int(row)].as_py()!r} has {values[row, column]:g} in column"
            f" {column}: {why}; choose --vectors float32, --normalize, or another --scale"
        )

    def _without_zeros(
        self, ids: Any, values: npt.NDArray[Any], zeros: npt.NDArray[np.bool_]
    ) -> tuple[Any, npt.NDArray[Any]]:
        if self._layout.zero_rows == "refuse":
            name = ids[int(np.flatnonzero(zeros)[0])].as_py()
            raise OutputError(
                f"the embedding of node {name!r} is a zero vector, which the index refuses;"
                " --zero-rows skip leaves such rows out and lists them"
            )
        return ids.filter(pa.array(~zeros)), values[~zeros]

    def _checked(self, ids: Any) -> Any:
        """The ids, if the index accepts them."""
        limits = self._limits
        if not pa.types.is_large_string(ids.type):
            return ids
        if limits.id_bytes is not None:
            long = pc.greater(pc.binary_length(ids), limits.id_bytes)
            _refuse_ids(ids, long, f"is longer than the {limits.id_bytes} bytes that it may have")
        if limits.ascii_ids:
            _refuse_ids(ids, pc.invert(pc.string_is_ascii(ids)), "is not ASCII, as it must be")
        if not limits.null_ids:
            _refuse_ids(ids, pc.match_substring(ids, "\0"), "has a NUL character, which it may not")
        return ids


def _id_array(ids: Any) -> Any:
    return to_arrow(ids) if isinstance(ids, np.ndarray) else ids


def _typed(ids: Any, wanted: str) -> Any:
    """Ids as text or integers."""
    text = pa.types.is_large_string(ids.type)
    if wanted == "keep" or (wanted == "text") == text:
        return ids
    if wanted == "text":
        return pc.cast(ids, pa.large_string())
    _refuse_ids(
        ids, pc.invert(pc.match_substring_regex(ids, _INTEGER)), "is no integer; choose --ids text"
    )
    try:
        return pc.cast(ids, pa.int64())
    except pa.ArrowInvalid as error:
        raise OutputError(f"an id is no integer of 64 bits ({error}); choose --ids text") from error


def _refuse_ids(ids: Any, wrong: Any, why: str) -> None:
    first = pc.index(wrong, True).as_py()
    if first >= 0:
        raise OutputError(f"the id {ids[first].as_py()!r} {why}")


def int8_scale(batches: Iterable[Batch], shaper: Shaper) -> float:
    """The scale with which the largest absolute value of all rows becomes 127.

    1 where all values are zero.
    """
    most = max(
        (float(np.abs(shaper.directions(values)).max(initial=0)) for _, values in batches),
        default=0.0,
    )
    return most / _INT8_MOST or 1.0
