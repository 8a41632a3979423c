"""SPMM: sums and maxima over in-neighbours, group by group as their rows arrive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch

from embertide.graph.arriving import Arrived, Operand, arriving, reduced
from embertide.graph.exchange import Channel
from embertide.graph.sources import Sources
from embertide.kernels.block import Block
from embertide.kernels.epilogue import NOTHING, Epilogue, Factors
from embertide.kernels.memory import as_type, empty_as
from embertide.kernels.spmm import Reduce, reduce_linear, reduce_rows

_ALL_ROWS = slice(None)
_MANY_GROUPS = 8
"""Remote groups from which on the sums of hubs are added up in float64."""


@dataclass(frozen=True)
class Reduction:
    """What is computed over the in-edges of each row.

    Attributes:
        weighted: use the graph's stored weights.
        target: [outputs] factors of the results, or None.
    """

    reduce: Reduce = "sum"
    weighted: bool = False
    target: torch.Tensor | None = None

    def factors(
        self, block: Block, source: torch.Tensor | None, rows: slice = _ALL_ROWS
    ) -> Factors:
        """The factors of a block's non-zeros, with [s] factors of its sources.

        Args:
            rows: of the results that the block has.
        """
        target = None if self.target is None else self.target[rows]
        return Factors(block.weights if self.weighted else None, source, target)


def spmm(
    channel: Channel,
    sources: Sources,
    operand: Operand,
    reduction: Reduction,
    last: Epilogue,
    *,
    depth: int,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """out[i] = epilogue(target_i * sum (or max) over in-edges j -> i of w_ij * scale_j * x[j]).

    The sum of a row without in-edges is zero, and so is its maximum. Collective: every rank of
    the sources' axis must call.

    Args:
        channel: of the sources' axis.
        sources: built for the layout that ``operand`` is in.
        dtype: of the result.

    Returns:
        [outputs, width] in the ``tile`` layout.
    """
    each = [sources], operand, [reduction], [last]
    (out,) = spmm_each(channel, *each, depth=depth, dtype=dtype)
    return out


def spmm_each(
    channel: Channel,
    sources: Sequence[Sources],
    operand: Operand,
    reductions: Sequence[Reduction],
    lasts: Sequence[Epilogue],
    *,
    depth: int,
    dtype: torch.dtype = torch.float32,
) -> list[torch.Tensor]:
    """As :func:`spmm`, for several matrices over the same rows, each of which travels once.

    Collective: every rank of the sources' axis must call.

    Args:
        sources: found together, see :func:`find_sources`.
    """
    each = list(zip(sources, reductions, lasts, strict=True))
    sums = [_Sum(channel, own, operand, reduction, last, dtype) for own, reduction, last in each]
    width = operand.local.shape[1]
    groups = arriving(
        channel, sources[0], operand.local, operand.picked, width=width, depth=depth, reuse=True
    )
    for arrived in groups:
        for one in sums:
            one.add(arrived)
    return [one.finish() for one in sums]


class _Sum:
    """The result of one matrix, group by group."""

    def __init__(
        self,
        channel: Channel,
        sources: Sources,
        operand: Operand,
        reduction: Reduction,
        last: Epilogue,
        dtype: torch.dtype,
    ) -> None:
        self._channel, self._sources = channel, sources
        self._reduction, self._last, self._dtype = reduction, last, dtype
        self._whole = not sources.remote
        # What other groups are added to is float32 until all were.
        made, shape = dtype if self._whole else torch.float32, operand.local.shape
        self._out = empty_as(operand.local, sources.outputs, shape[1], dtype=made)
        self._hubs = None
        if reduction.reduce == "sum" and len(sources.remote) >= _MANY_GROUPS:
            self._hubs = HubSums.of(sources, self._out)

    def add(self, arrived: Arrived) -> None:
        """The non-zeros of a group; the local one comes first, and writes every row."""
        reduce, whole = self._reduction.reduce, self._whole
        if arrived.number is None:
            # With groups to come what is added goes in first and the activation waits for the last.
            last = self._last
            early = replace(last, activation="none", scale=None) if reduce == "sum" else NOTHING
            last = last if whole else early
            for rows, part in self._sources.local.each():
                reduce_rows(
                    self._out[rows],
                    part,
                    arrived.source,
                    self._reduction.factors(part, arrived.scale, rows),
                    last.part(rows),
                    reduce=reduce,
                    empty=0.0 if whole else float("-inf"),
                )
        else:
            group = self._sources.remote[arrived.number]
            with nullcontext() if self._hubs is None else self._hubs.adding(group.hubs):
                for rows, part in self._sources.parts(arrived.number):
                    reduce_rows(
                        self._out[rows],
                        part,
                        arrived.source,
                        self._reduction.factors(part, None, rows),
                        NOTHING,
                        reduce=reduce,
                        accumulate=True,
                    )
        reduced(self._channel, self._sources, arrived.number, arrived.source, arrived.scale)

    def finish(self) -> torch.Tensor:
        """[outputs, width], when all groups were added."""
        return as_type(self._out if self._whole else self._finished(), self._dtype)

    def _finished(self) -> torch.Tensor:
        """Where there were several groups: what is done to a row after its sum."""
        if self._hubs is not None:
            self._hubs.finish()
        if self._reduction.reduce == "max":
            out = self._out.masked_fill_(self._out == float("-inf"), 0.0)
            return self._last.apply_(out)
        return replace(self._last, bias=None, added=None).apply_(self._out)


@dataclass(frozen=True)
class HubSums:
    """What remote groups have added to rows with many non-zeros in one of them, in float64.

    Attributes:
        out: the sums of all rows.
        rows: [k] int64 these rows, ascending.
        added: [k, width].
    """

    out: torch.Tensor
    rows: torch.Tensor
    added: torch.Tensor

    @classmethod
    def of(cls, sources: Sources, out: torch.Tensor) -> HubSums | None:
        """None where no group has such a row."""
        hubs = [block.hubs for block in sources.remote]
        rows = torch.cat(hubs).unique() if hubs else torch.empty(0)
        if not len(rows):
            return None
        return cls(out, rows, out.new_zeros(len(rows), out.shape[1], dtype=torch.float64))

    @contextmanager
    def adding(self, rows: torch.Tensor) -> Iterator[None]:
        """Take from ``out`` what a group adds to its hubs [k] meanwhile."""
        before = self.out[rows]
        self.out[rows] = 0.0
        yield
        self.added[torch.searchsorted(self.rows, rows)] += self.out[rows].double()
        self.out[rows] = before

    def finish(self) -> None:
        """Add them to ``out``."""
        self.out[self.rows] = (self.out[self.rows].double() + self.added).float()


def spmm_linear(
    channel: Channel,
    sources: Sources,
    operand: Operand,
    weight: torch.Tensor,
    reduction: Reduction,
    last: Epilogue,
    onto: torch.Tensor | None = None,
    *,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """As :func:`spmm`, multiplied by a weight before the epilogue; the sums never exist as a whole.

    Collective: every rank of the sources' axis must call.

    Args:
        sources: all held by this rank, or read in place.
        operand: with all columns.
        weight: [D', D].
        onto: as in :func:`embertide.graph.gemm.linear`.
        dtype: of the result, where there is nothing that it is added to.

    Returns:
        [outputs, D'].
    """
    if onto is None:
        out = empty_as(operand.local, sources.outputs, len(weight), dtype=dtype)
    else:
        out = onto
    width = operand.local.shape[1]
    groups = arriving(channel, sources, operand.local, operand.picked, width=width, depth=1)
    for arrived in groups:
        reduce_linear(
            out,
            sources.whole,
            arrived.source,
            weight,
            reduction.factors(sources.whole, arrived.scale),
            last,
            reduce=reduction.reduce,
            accumulate=onto is not None,
        )
        reduced(channel, sources, None, arrived.source, arrived.scale)
    return out
