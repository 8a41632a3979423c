"""The node tensors that are alive during the layers, by name and layout.

A tensor is converted between ``tile`` and ``rows`` when a step needs it in the other layout,
and freed after its last reader. The input stays on the ranks that loaded it until its first use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace

import torch

from embertide.footprint import FLOAT_BYTES
from embertide.graph.exchange import Channel, Exchange
from embertide.graph.gemm import linear, rows_to_tile, tile_to_rows
from embertide.graph.landing import RowProduct, land, land_in_place
from embertide.grid import ColumnSlices, RowRanges
from embertide.kernels.epilogue import NOTHING
from embertide.kernels.memory import as_type
from embertide.layouts import Layout, Loaded, Shard
from embertide.program.steps.base import Step
from embertide.program.steps.op import Input, Op
from embertide.program.steps.program import Program


class Tensors:
    """Our shards of a program's tensors.

    Args:
        ranges: node type -> which worker owns which nodes.
        loaded: node type -> the feature rows we read; released after the input's last use.
        locations: node type -> [N/(P*M), 2] loader rank and row of the features of our
            sub-range's nodes.
        batch_bytes: how much of the input is handled at a time while it goes to its owners.
        row_type: in which what is only read over edges is held, and rows change their layout.
    """

    def __init__(
        self,
        exchange: Exchange,
        program: Program,
        ranges: dict[str, RowRanges],
        loaded: dict[str, Loaded],
        locations: dict[str, torch.Tensor],
        *,
        batch_bytes: int,
        row_type: torch.dtype = torch.float32,
    ) -> None:
        self._loaded = {name: loaded[of_type] for of_type, name in program.inputs.items()}
        self._exchange, self._program, self._ranges = exchange, program, ranges
        self._locations, self._batch_bytes, self._row_type = locations, batch_bytes, row_type
        upload = exchange.staging.upload
        self._params = {name: upload(value) for name, value in program.params.items()}
        self._alive: dict[str, dict[Layout, Shard]] = {}
        self._settle: dict[str, Callable[[], None]] = {}
        self._columns: slice | None = None
        self._inputs: Sequence[Input] = ()
        self._frees: Collection[str] = ()
        for name, source in self._loaded.items():
            if source.placed:
                self._alive[name] = {"rows": Shard("rows", source.data, program.widths[name])}

    def begin(self, inputs: Sequence[Input], frees: Collection[str]) -> None:
        """An operation begins, which reads some tensors; those it frees are read no more."""
        self._inputs, self._frees = inputs, frees

    def keep(self, name: str, shard: Shard) -> None:
        """The operation's result; frees what no later one reads."""
        for gone in self._frees:
            self.read(gone)
        data = as_type(shard.data, self.type_of(name))
        self._alive[name] = {shard.layout: replace(shard, data=data)}

    # -- parts of tensors that are on disk ---------------------------------------------------

    def part(
        self,
        program: Program,
        shards: Iterable[tuple[str, Shard]],
        *,
        op: Op | None = None,
        columns: slice | None = None,
        ranges: Mapping[str, RowRanges] | None = None,
        loaded: Mapping[str, torch.Tensor] | None = None,
    ) -> Tensors:
        """Tensors of which parts are there.

        Args:
            program: with the widths of the parts.
            shards: name and part, in one layout or in several.
            op: what reads them.
            columns: of the operation's result, where the parts are some columns.
            ranges: as for all tensors, of the rows that the parts have; None: they have all.
            loaded: name of an input -> [n, k] some of its columns, where it was loaded.
        """
        some = copy(self)
        some._program, some._columns, some._settle = program, columns, {}
        some._ranges = {**self._ranges, **(ranges or {})}
        some._alive = {}
        for name, shard in shards:
            some._alive.setdefault(name, {})[shard.layout] = shard
        some._loaded = {
            name: replace(self._loaded[name], data=values)
            for name, values in (loaded or {}).items()
        }
        if op is not None:
            some.begin(op.inputs, op.frees)
        return some

    # -- tensors that are kept for later attempts --------------------------------------------

    def to_keep(self, name: str) -> Shard:
        """Our shard of a tensor that was made, with all its columns where there is one."""
        shards = self._alive[name]
        return shards.get("rows") or shards["tile"]

    def converted(self, name: str, layout: Layout, channel: Channel) -> Shard:
        """A tensor that was made, in any layout; it is left as it is.

        Collective: every rank of the feature axis must call.
        """
        shards = self._alive[name]
        if layout in shards:
            return shards[layout]
        (shard,) = shards.values()
        ranges = self._ranges[self._program.types[name]]
        return Shard(layout, self._converted(channel, ranges, shard, layout), shard.width)

    def restore(self, shards: Mapping[str, Shard], frees: Collection[str]) -> None:
        """Go on with the tensors that some operations have made, and without what they free."""
        self._alive |= {name: {shard.layout: shard} for name, shard in shards.items()}
        self._frees = frees
        for gone in frees:
            self.read(gone)

    def forget(self, features: Collection[str]) -> None:
        """Let go of what was made, and start again with the features."""
        for name in [name for name in self._alive if name not in features]:
            del self._alive[name]

    def forget_one(self, name: str) -> None:
        """Let go of a tensor."""
        self.settle(name)
        self._alive.pop(name, None)

    def hold(self, names: Mapping[str, Callable[[], None]]) -> None:
        """Call each tensor's function before it is freed or changed in place, in place of those
        of an earlier call."""
        self._settle = dict(names)

    def settle(self, name: str) -> None:
        """The tensor is about to be freed or changed in place."""
        if name in self._settle:
            self._settle.pop(name)()

    def add(self, steps: Iterable[Step], shards: Sequence[Shard]) -> None:
        """Keep results of several steps, in float32, until their operations take them."""
        for step, shard in zip(steps, shards, strict=True):
            self._alive[step.out] = {shard.layout: shard}

    def type_of(self, name: str) -> torch.dtype:
        """The type in which a tensor is held: float32 unless its rows are only read over edges."""
        return self._row_type if name in self._program.only_gathered else torch.float32

    def read(self, name: str) -> None:
        """The operation is done with the tensor: frees it where no later one reads it."""
        if self.dies(name):
            self._alive.pop(name, None)
            if name in self._loaded:
                self._loaded[name].release()

    def take(self, name: str) -> Shard:
        """The tensor becomes another one."""
        self.settle(name)
        return next(iter(self._alive.pop(name).values()))

    def dies(self, name: str) -> bool:
        """No later operation reads the tensor, so it may be changed in place."""
        last = name in self._frees
        if last:
            self.settle(name)
        return last

    def is_loaded(self, name: str) -> bool:
        """Whether the tensor is an input, still in the order in which ranks loaded it."""
        return name in self._loaded and name not in self._alive

    def loaded(self, name: str) -> Loaded:
        """The rows of an input that we read."""
        return self._loaded[name]

    def current(self, name: str) -> Shard | None:
        """The tensor in the layout that it has now, without converting it.

        Returns:
            None where it is still as it was loaded, or not alive.
        """
        shards = self._alive.get(name, {})
        return next(iter(shards.values()), None)

    def get(self, name: str, layout: Layout, channel: Channel) -> Shard:
        """The tensor in a layout, converted or sent to its owners where it is not there yet.

        Collective: every rank must call.

        Args:
            channel: of the feature axis; a conversion is counted under its label.
        """
        planned = any(read.name == name and read.layout == layout for read in self._inputs)
        assert planned, f"{name!r} is read in {layout}, unlike planned"
        if self.is_loaded(name):
            width, layer = self._program.widths[name], channel.label.layer
            landed = self.land(name, None, layout=layout, width=width, layer=layer)
            self._alive[name] = {layout: landed}
            self._loaded[name].release()
            return landed
        shards = self._alive[name]
        if layout not in shards:
            ranges = self._ranges[self._program.types[name]]
            (shard,) = shards.values()
            data = self._converted(channel, ranges, shard, layout)
            if self.dies(name):
                shards.clear()
            shards[layout] = Shard(layout, data, shard.width)
        return shards[layout]

    def _converted(
        self, channel: Channel, ranges: RowRanges, shard: Shard, layout: Layout
    ) -> torch.Tensor:
        """The shard's tensor in another layout, in the type that it has now.

        Collective: every rank of the feature axis must call.
        """
        if channel.grid.feature == 1:
            return shard.data
        # Scores travel as they are.
        wire = self._row_type if channel.label.primitive == "gemm" else shard.data.dtype
        sent = as_type(shard.data, wire)
        if layout == "rows":
            return tile_to_rows(channel, ranges, sent, shard.width, dtype=shard.data.dtype)
        return as_type(rows_to_tile(channel, ranges, sent), shard.data.dtype)

    def land(
        self,
        name: str,
        product: RowProduct | None,
        *,
        layout: Layout,
        width: int,
        layer: int,
        onto: torch.Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Shard:
        """A product of loaded features, or they themselves, in a layout.

        Collective: every rank must call.

        Args:
            onto: [N/(P*M), D'] what the product is added to, in place; it arrives as rows then.
            dtype: of a result that is added to nothing, which travels so.
        """
        channel = self._exchange.channel("world", "features", layer)
        node_type, loaded = self._program.types[name], self._loaded[name]
        if channel.in_place:
            return land_in_place(
                channel,
                loaded,
                self._locations[node_type],
                product,
                layout=layout,
                width=width,
                onto=onto,
                dtype=dtype,
            )

        def compute(batch: torch.Tensor) -> torch.Tensor:
            if product is None:
                return batch
            return linear(batch, product.weight, product.last if onto is None else NOTHING)

        landed = land(
            channel,
            self._ranges[node_type],
            loaded,
            compute,
            layout=layout,
            width=width,
            batch_rows=max(1, self._batch_bytes // (FLOAT_BYTES * max(width, loaded.width))),
            dtype=dtype,
        )
        if product is None or onto is None:
            return landed
        return replace(landed, data=product.last.apply_(onto.add_(landed.data)))

    def param(self, name: str | None) -> torch.Tensor | None:
        """A parameter, whole, on the device; None for no name."""
        return None if name is None else self._params[name]

    def columns(self, name: str | None, shard: Shard) -> torch.Tensor | None:
        """A per-column parameter, cut to the shard's columns."""
        param = self.param(name)
        if param is not None and self._columns is not None:
            return param[self._columns]
        if param is None or shard.layout == "rows":
            return param
        grid = self._exchange.grid
        return param[slice(*ColumnSlices(shard.width, grid.feature).bounds(grid.m))]
