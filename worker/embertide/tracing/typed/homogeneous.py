"""Rows of all node types in one tensor, and of all relations' edges: types are numbers.

PyG's ``to_homogeneous`` and DGL's make such tensors, type after type. A program has a tensor for
each type: what is recorded of rows together is recorded again for each (`separated`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from embertide.spec.result_names import result_key
from embertide.tracing.record.graphs import RandomGraph
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import ALL, is_of_several
from embertide.tracing.record.traced import Node, Traced, map_nodes, plain
from embertide.tracing.record.user_code import refuse


def spans(graph: RandomGraph) -> dict[str, slice]:
    """Node type -> where its rows are."""
    bounds = accumulate(graph.counts.values(), initial=0)
    return dict(zip(graph.counts, (slice(*pair) for pair in pairwise(bounds)), strict=True))


def parts_of(recording: Recording, x: Traced) -> dict[str, Any]:
    """Node type -> its rows of a tensor of all nodes."""
    if x.node.of != ALL:
        return {x.node.of: x}
    tape, value = recording.tape, plain(x)
    return {
        name: tape.wrap(tape.add("part", (x, name), {}, value[span], name))
        for name, span in spans(recording.graph).items()
    }


def joined(recording: Recording, parts: Mapping[str, Any]) -> Any:
    """One tensor of the rows of all types."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    names = recording.types.nodes
    tape, values = recording.tape, [plain(parts[name]) for name in names]
    node = tape.add("together", tuple(parts[name] for name in names), {}, torch.cat(values), ALL)
    return tape.wrap(node)


def separated(recording: Recording, outputs: Mapping[str, Node]) -> dict[str, Node]:
    """Key -> the rows of a node type of a result: the whole record, with a tensor for each type.

    Args:
        outputs: name of a result -> its node.

    Raises:
        ModelError: an operation puts rows of several types together.
    """
    split = _Separation(recording)
    for node in recording.tape.nodes:
        split.add(node)
    return {
        result_key(node_type, name): node
        for name, output in outputs.items()
        for node_type, node in split.by_type[output].items()
    }


class _Separation:
    """The record so far, in order: what is of all types once for each."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.spans = recording, spans(recording.graph)
        self.by_type: dict[Node, dict[str, Node]] = {}
        self.same: dict[Node, Node] = {}
        self._numbers = 0

    def add(self, node: Node) -> None:
        """One more operation; those of all edges are there once more for each relation."""
        if node.edges and is_of_several(node):
            return
        if node.of != ALL or node.edges:
            self.same[node] = self._within(node)
        elif node.op == "input":
            self.by_type[node] = {name: x.node for name, x in self.recording.x.items()}
        elif node.op == "together":
            parts = dict(zip(self.spans, node.args, strict=True))
            self.by_type[node] = {name: self.same[part] for name, part in parts.items()}
        else:
            self.by_type[node] = {name: self._of(node, name) for name in self.spans}

    def _within(self, node: Node) -> Node:
        """An operation within a type, or along a relation."""
        if node.op == "part":
            return self.by_type[node.args[0]][node.args[1]]
        return self._copy(node, lambda source: self.same[source], {})

    def _of(self, node: Node, name: str) -> Node:
        """An operation on all rows, on those of a type."""
        value = self._rows(node, name)
        return self._copy(
            node, lambda source: self.by_type[source][name], {"value": value, "of": name}
        )

    def _copy(self, node: Node, change: Callable[[Node], Node], more: dict[str, Any]) -> Node:
        self._numbers += 1
        args, kwargs = map_nodes(change, node.args), map_nodes(change, node.kwargs)
        return replace(node, args=args, kwargs=kwargs, number=self._numbers, **more)

    def _rows(self, node: Node, name: str) -> Any:
        """A type's rows of what an operation gave."""
        total = sum(self.recording.graph.counts.values())

        def cut(value: Any) -> Any:
            if isinstance(value, (tuple, list)):
                return tuple(cut(part) for part in value)
            if not isinstance(value, Tensor) or value.shape[:1] != (total,):
                raise refuse(
                    node.where,
                    f"{node.op} mixes rows of several node types; keep a row for each node",
                )
            return value[self.spans[name]]

        return cut(node.value)
