"""From recorded operations to a program: each node that the result needs becomes steps.

What each function of torch becomes is in `functions`, each convolution in `convs`, sums over
edges in `messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from embertide.errors import ModelError
from embertide.models.builder import INPUT, ProgramBuilder
from embertide.models.folder import LayerName
from embertide.models.weights import Weights
from embertide.steps import Program, Step
from embertide.tracing.source import refuse
from embertide.tracing.tape import Node
from embertide.tracing.values import Pending, Rows, Stack


@dataclass
class Lowered:
    """A program, and which recorded node each of its tensors stands for.

    Attributes:
        made: name of a tensor -> the node whose value it has.
    """

    program: Program
    layers: tuple[LayerName, ...]
    made: dict[str, Node]


@dataclass
class Lowering:
    """The program so far.

    Attributes:
        nodes: rows of the traced graph.
        emit: makes the step of operations that wait for it.
    """

    module: nn.Module
    nodes: int
    emit: Callable[[Lowering, Pending], Rows]
    b: ProgramBuilder
    weights: Weights
    values: dict[Node, Any] = field(default_factory=dict)
    made: dict[str, Node] = field(default_factory=dict)
    layers: list[LayerName] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    last: str = INPUT
    _scope: str | None = None

    def rows(self, node: Node, value: Any) -> Rows:
        """A value that must have one row for each node."""
        if isinstance(value, Pending):
            made = self.emit(self, value)
            self._keep(value.node, made)
            return made
        if isinstance(value, Rows):
            return value
        if isinstance(value, Stack):
            raise refuse(
                node.where, f"{node.op} of a stack is not known; reduce it first: sum, mean or max"
            )
        raise refuse(
            node.where,
            f"{node.op} takes a tensor that comes from no node features; give it one that does",
        )

    def name(self, rows: Rows) -> str:
        """The tensor's name, once its factor is multiplied in."""
        if rows.factor == 1.0:
            return rows.name
        scale = torch.full((self.b.widths[rows.name],), rows.factor, dtype=torch.float64)
        return self.b.affine(rows.name, self.derived("scale", scale), None)

    def constant(self, tensor: Tensor, short: str) -> str:
        """The parameter that a constant is: a stored one by its own name, else a derived one."""
        known = self.names.get(id(tensor))
        if known is None:
            return self.derived(short, tensor)
        self.weights.params[known] = tensor.detach().contiguous()
        return known

    def derived(self, short: str, tensor: Tensor) -> str:
        """Add a parameter that is computed from others, or from none."""
        name, count = f"traced.{len(self.b.outputs)}.{short}", 0
        while name in self.weights.params:
            count += 1
            name = f"traced.{len(self.b.outputs)}.{short}_{count}"
        self.weights.params[name] = tensor.detach().contiguous()
        return name

    def begin(self, path: str, kind: str, reads_edges: bool) -> None:
        """A convolution starts: what was before it is a layer of its own."""
        if self.layers:
            self._finish()
        elif self.last != INPUT:
            self.layers.append(LayerName("", "row-wise", False))
            self._finish()
        self.b.begin(reads_edges)
        self.layers.append(LayerName(path, kind, reads_edges))

    def begin_scope(self, scope: str, path: str, kind: str) -> None:
        """As `begin`, but sums within one call of a module share its layer graph."""
        if scope != self._scope:
            self.begin(path, kind, True)
            self._scope = scope

    def _finish(self) -> None:
        self.b.finish(self.last)
        self._scope = None

    def run(self, output: Node, lower: Callable[[Lowering, Node], Any]) -> Rows:
        """All nodes that the output needs, each after those that it reads.

        Args:
            lower: gives the value of one node.
        """
        for node in needed(output):
            if node.edges:
                continue
            if node.op == "input":
                self.values[node] = Rows(INPUT)
                continue
            self._keep(node, lower(self, node))
        return self.rows(output, self.values.get(output))

    def _keep(self, node: Node, value: Any) -> None:
        self.values[node] = value
        if isinstance(value, Rows):
            self.last = value.name
            if value.factor == 1.0:
                self.made.setdefault(value.name, node)

    def finish(self, output: Rows, where: str) -> Lowered:
        """The program whose result is ``output``.

        Raises:
            ModelError: a parameter has another shape than its convolution expects, or nothing
                reads the graph's features.
        """
        name = self.name(output)
        if name == INPUT:
            raise refuse(where, "forward returns its features as they are; there is no model")
        if not self.layers:
            self.layers.append(LayerName("", "row-wise", False))
        self.last = name
        self._finish()
        if self.weights.differences:
            found = ", ".join(
                f"{one} is {got}, not {want}" for one, want, got in self.weights.differences
            )
            raise ModelError(f"the module's parameters are not its convolutions': {found}")
        program = Program(
            steps=_read(self.b.steps, {name, *self.b.outputs}),
            params=self.weights.params,
            widths=self.b.widths,
            layers=self.b.layer + 1,
            inputs={"": INPUT},
            results={"": name},
            outputs=tuple(self.b.outputs),
        )
        return Lowered(program, tuple(self.layers), self.made)


def _read(steps: list[Step], wanted: set[str]) -> tuple[Step, ...]:
    """The steps that a wanted tensor needs."""
    kept: list[Step] = []
    for step in reversed(steps):
        if step.out in wanted:
            kept.append(step)
            wanted |= set(step.reads())
    return tuple(reversed(kept))


def needed(output: Node) -> list[Node]:
    """The nodes that lead to one, in the order in which they were recorded."""
    found, left = {output}, [output]
    while left:
        new = set(left.pop().sources()) - found
        found |= new
        left.extend(new)
    return sorted(found, key=lambda node: node.number)


def bound_names(module: nn.Module) -> dict[int, str]:
    """The stored name of every parameter and buffer, by identity."""
    both: Iterable[tuple[str, Tensor]] = (*module.named_parameters(), *module.named_buffers())
    return {id(tensor): name for name, tensor in both}
