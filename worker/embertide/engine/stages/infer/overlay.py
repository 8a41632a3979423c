"""Rows of a tensor that an earlier run has kept, and over them those that this run has computed.

Of what was kept only the pages are read that have rows that are asked for. So what a run goes over
of a tensor between two layers are the rows that the next layer needs, those that are compared with
what was kept, and those whose norms are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt
import torch

from embertide.engine.stages.infer.moved import ROWS, Beside, distances, finite_rows, moved_rows
from embertide.engine.stages.infer.restoring import check_form
from embertide.graph.exchange import Channel
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged, KeptTensor
from embertide.kernels.memory import empty
from embertide.program.plans.places import as_array, place_of
from embertide.program.steps.execution import Execution
from embertide.program.steps.frontier import Rows

AUDIT = "rows of {name} that did not change have other bits than those that were kept"
MOVED = (
    "rows of {name} that need not be computed are further than the tolerance from those that were"
    " kept"
)
NOT_FINITE = (
    "rows of {name} that did not change are not finite, so that their distance from those that"
    " were kept is unknown (refresh.tolerance)"
)


class Overlay:
    """Our rows and columns of a tensor, as the run that kept it had them. Rows are numbered from 0.

    It has the shape of what is written when it is kept
    (:class:`~embertide.io.versions.layers.store.Values`).

    Args:
        before: node type -> [N] int64, the dense id that each node had then; -1: it is new.

    Attributes:
        first: the dense id of the first row.
        why: what is wrong of rows that were kept, where any is; "": nothing.

    Raises:
        Damaged: the tensor has another form.
    """

    def __init__(
        self, whole: Execution, kept: Kept, before: Mapping[str, torch.Tensor], tensor: KeptTensor
    ) -> None:
        check_form(whole, kept.store, tensor)
        self.layout, self.width, self.why = tensor.layout, tensor.width, ""
        self.dtype = whole.tensors.type_of(tensor.name)
        (self.first, last), (self._left, right) = place_of(whole, tensor.name, tensor.layout)
        self._columns, self._kept, self._name = right - self._left, kept, tensor.name
        self._then = before[whole.program.types[tensor.name]][self.first : last]
        none = torch.empty(0, dtype=torch.int64), empty((0, self._columns), self.dtype)
        self._newer = Beside(*none)

    def __len__(self) -> int:
        return len(self._then)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self), self._columns

    @property
    def itemsize(self) -> int:
        """Bytes of a value."""
        return self.dtype.itemsize

    def put(self, numbers: torch.Tensor, values: torch.Tensor) -> None:
        """Put rows in the place of those that were kept.

        Args:
            numbers: [k] int64, ascending; others than those that were put before.
            values: [k, d].
        """
        if not len(self._newer.rows):
            self._newer = Beside(numbers, values)
            return
        every = torch.cat([self._newer.rows, numbers])
        order = every.argsort()
        self._newer = Beside(every[order], torch.cat([self._newer.values, values])[order])

    def rows(self, numbers: torch.Tensor) -> torch.Tensor:
        """[k, d] some rows; those of new nodes that were not put mean nothing.

        Where what was kept is not what was written :attr:`why` is set, and rows mean nothing: all
        ranks go on until they agree that they cannot.

        Args:
            numbers: [k] int64, ascending.
        """
        try:
            return self.read(numbers)
        except Damaged as error:
            self.why = self.why or str(error)
            return torch.zeros(len(numbers), self._columns, dtype=self.dtype)

    def parts(self, numbers: torch.Tensor) -> Iterator[torch.Tensor]:
        """The same, :data:`ROWS` of them at a time; one at least."""
        return map(self.rows, numbers.split(ROWS))

    def read(self, numbers: torch.Tensor) -> torch.Tensor:
        """[k, d] as :meth:`rows`.

        Raises:
            Damaged: what was kept is not what was written, or cannot be read.
        """
        out = empty((len(numbers), self._columns), self.dtype)
        self._read_into(as_array(out), numbers)
        return out

    def fill(self, rows: slice, _columns: slice, out: npt.NDArray[Any]) -> None:
        """Set ``out`` to a range of rows, by their dense ids; see :meth:`rows`."""
        first, count = rows.start - self.first, rows.stop - rows.start
        step = count if _follow(self._then[first : first + count]) else ROWS
        try:
            for at in range(0, count, step):
                some = out[at : at + step]
                self._read_into(some, torch.arange(first + at, first + at + len(some)))
        except Damaged as error:
            self.why = self.why or str(error)

    def __getitem__(self, rows: slice | npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What is written of some rows; raises :class:`Damaged`."""
        if isinstance(rows, slice):
            return as_array(self.read(torch.arange(rows.start, rows.stop)))
        return as_array(self.read(torch.from_numpy(rows)))

    def _read_into(self, out: npt.NDArray[Any], numbers: torch.Tensor) -> None:
        then, data = self._then[numbers], torch.from_numpy(out).view(self.dtype)
        if _follow(then):
            self._kept.get(self._name, (int(then[0]), int(then[-1]) + 1), out, self._left)
        else:
            known = (then >= 0) & ~self._newer.has(numbers)
            if bool(known.all()):
                self._kept.get(self._name, then.numpy(), out, self._left)
            else:
                found = empty((int(known.sum()), self._columns), self.dtype)
                self._kept.get(self._name, then[known].numpy(), as_array(found), self._left)
                data.zero_()
                data[known] = found
        self._newer.put_into(data, numbers)


@dataclass(frozen=True)
class RowsBeside:
    """Some rows of our shard of a tensor, and what they were computed as.

    Attributes:
        all_rows: of our shard.
        numbers: [k] int64, the rows of it, ascending.
        values: [k, d] as they were computed.
        new: [k] bool, of nodes that were not there before: what was kept means nothing.
        axis: of the feature axis; None where each rank has whole rows.
    """

    all_rows: Overlay
    numbers: torch.Tensor
    values: torch.Tensor
    new: Rows
    axis: Channel | None

    @property
    def ids(self) -> torch.Tensor:
        """[k] int64, their dense ids."""
        return self.numbers + self.all_rows.first

    def differ(self) -> Rows:
        """[k] bool, the rows that are new or have other bits. Collective: the ranks of the feature
        axis must call."""
        moved = (moved_rows(*pair, 0.0, self.axis) for pair in self._pairs())
        return torch.cat(list(moved)) | self.new

    def distances(self) -> tuple[torch.Tensor, torch.Tensor]:
        """:func:`distances` of what was kept and what was computed."""
        distance, norm = zip(*(distances(*pair, self.axis) for pair in self._pairs()), strict=True)
        return torch.cat(distance), torch.cat(norm)

    def _pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Some rows at a time, as they were kept and as they were computed."""
        parts = [self._few] if len(self.numbers) <= ROWS else self.all_rows.parts(self.numbers)
        return zip(parts, self.values.split(ROWS), strict=True)

    @cached_property
    def _few(self) -> torch.Tensor:
        return self.all_rows.rows(self.numbers)

    def put(self, some: Rows) -> None:
        """Put some of them in the place of those that were kept.

        Args:
            some: [k] bool.
        """
        self.all_rows.put(self.numbers[some], self.values[some])

    def problem(self, name: str, wrong: Rows, tolerance: float) -> str:
        """What is wrong where rows should not have moved; "": none is.

        Args:
            wrong: [k] bool, those that have.
        """
        if not bool(wrong.any()):
            return ""
        if tolerance == 0:
            return AUDIT.format(name=name)
        both = torch.cat([self.values[wrong], self.all_rows.rows(self.numbers[wrong])])
        finite = bool(finite_rows(both, self.axis).all())
        return (MOVED if finite else NOT_FINITE).format(name=name)


def _follow(then: torch.Tensor) -> bool:
    """Whether each of some dense ids is one more than that before."""
    return len(then) > 0 and int(then[0]) >= 0 and bool((then.diff() == 1).all())
