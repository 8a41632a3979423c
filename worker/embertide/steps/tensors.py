"""The node tensors that are alive during the layers, by name and layout.

A tensor is converted between ``tile`` and ``rows`` when a step needs it in the other layout,
and freed after its last reader. The input stays on the ranks that loaded it until its first use.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from embertide.grid import ColumnSlices, RowRanges
from embertide.kernels.memory import copy_of
from embertide.layouts import Layout, Loaded, Shard
from embertide.primitives.exchange import Channel, Exchange
from embertide.primitives.gemm import rows_to_tile, tile_to_rows
from embertide.primitives.landing import land
from embertide.steps.program import Program


class Tensors:
    """Our shards of a program's tensors.

    Args:
        ranges: node type -> which worker owns which nodes.
        loaded: node type -> the feature rows we read; released after the input's last use.
        batch_bytes: how much of the input is handled at a time while it goes to its owners.
    """

    def __init__(
        self,
        exchange: Exchange,
        program: Program,
        ranges: dict[str, RowRanges],
        loaded: dict[str, Loaded],
        *,
        batch_bytes: int,
    ) -> None:
        self._loaded = {name: loaded[of_type] for of_type, name in program.inputs.items()}
        self._exchange, self._program, self._ranges = exchange, program, ranges
        self._batch_bytes = batch_bytes
        self._params = {name: value.to(exchange.device) for name, value in program.params.items()}
        self._alive: dict[str, dict[Layout, Shard]] = {}
        self._last = program.last_reads()
        self._at = 0
        for name, given in self._loaded.items():
            if given.placed:
                self._alive[name] = {"rows": Shard("rows", given.data, program.widths[name])}

    def advance(self, at: int) -> None:
        """Step ``at`` begins."""
        self._at = at

    def keep(self, name: str, shard: Shard) -> None:
        """The step's result; frees what no later step reads."""
        for gone in [n for n in self._alive if self._last.get(n, -1) <= self._at]:
            del self._alive[gone]
        for given in [n for n in self._loaded if self._last.get(n, -1) <= self._at]:
            self._loaded[given].release()
        self._alive[name] = {shard.layout: shard}

    def read(self, name: str) -> None:
        """The step under way is done with the tensor: frees it where no later one reads it."""
        if self.dies(name):
            self._alive.pop(name, None)
            if name in self._loaded:
                self._loaded[name].release()

    def take(self, name: str) -> None:
        """The tensor has become another one."""
        del self._alive[name]

    def dies(self, name: str) -> bool:
        """No step after this one reads the tensor, so it may be changed in place."""
        return self._last[name] <= self._at

    def is_loaded(self, name: str) -> bool:
        """Whether the tensor is an input, still in the order in which ranks loaded it."""
        return name in self._loaded and name not in self._alive

    def loaded(self, name: str) -> Loaded:
        """The rows of an input that we read."""
        return self._loaded[name]

    def has(self, name: str, layout: Layout) -> bool:
        """Whether we hold a shard of the tensor in that layout."""
        return layout in self._alive.get(name, {})

    def get(self, name: str, layout: Layout, channel: Channel) -> Shard:
        """The tensor in a layout, converted or sent to its owners where it is not there yet.

        Collective: every rank must call.

        Args:
            channel: of the feature axis; a conversion is counted under its label.
        """
        if self.is_loaded(name):
            width, layer = self._program.widths[name], channel.label.layer
            landed = self.land(name, lambda batch: batch, layout=layout, width=width, layer=layer)
            self._alive[name] = {layout: landed}
            self._loaded[name].release()
            return landed
        shards = self._alive[name]
        if layout not in shards:
            ranges = self._ranges[self._program.types[name]]
            (given,) = shards.values()
            if layout == "rows":
                data = tile_to_rows(channel, ranges, given.data, given.width)
            else:
                data = rows_to_tile(channel, ranges, given.data)
            if self.dies(name):
                shards.clear()
            shards[layout] = Shard(layout, data, given.width)
        return shards[layout]

    def any(self, name: str, channel: Channel) -> Shard:
        """The tensor in the layout it has; the input as rows. Collective: every rank must call."""
        if name in self._alive:
            return next(iter(self._alive[name].values()))
        return self.get(name, "rows", channel)

    def own(self, name: str, channel: Channel) -> Shard:
        """As :meth:`any`, to be changed in place: a copy where later steps read the tensor.

        Collective: every rank must call.
        """
        shard = self.any(name, channel)
        if self.dies(name):
            return shard
        return Shard(shard.layout, copy_of(shard.data), shard.width)

    def land(
        self,
        name: str,
        compute: Callable[[torch.Tensor], torch.Tensor],
        *,
        layout: Layout,
        width: int,
        layer: int,
    ) -> Shard:
        """A row-wise function [b, D] -> [b, width] of loaded features, in a layout.

        Collective: every rank must call.
        """
        rows = max(1, self._batch_bytes // (4 * max(width, self._program.widths[name])))
        return land(
            self._exchange.channel("world", "features", layer),
            self._ranges[self._program.types[name]],
            self._loaded[name],
            compute,
            layout=layout,
            width=width,
            batch_rows=rows,
        )

    def param(self, name: str | None) -> torch.Tensor | None:
        """A parameter, whole, on the device; None for no name."""
        return None if name is None else self._params[name]

    def columns(self, name: str | None, shard: Shard) -> torch.Tensor | None:
        """A per-column parameter, cut to the shard's columns."""
        param = self.param(name)
        if param is None or shard.layout == "rows":
            return param
        grid = self._exchange.grid
        return param[slice(*ColumnSlices(shard.width, grid.feature).bounds(grid.m))]

    def wants_rows(self, name: str) -> bool:
        """A step that reads the tensor needs whole rows (or it is the output)."""
        return self._program.wants_rows(name)
