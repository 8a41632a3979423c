"""From recorded operations to a program: each node that the result needs becomes steps.

What each function of torch becomes is in `functions`, each convolution in `convs`, sums over
edges in `edge_sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from embertide.errors import ModelError
from embertide.models.builder import ProgramBuilder
from embertide.models.folder import LayerName
from embertide.models.weights import Weights
from embertide.program.steps import Program, Step
from embertide.spec.relations import Relation
from embertide.spec.result_names import node_type_of
from embertide.tracing.lower.values import NodeRows, Pending, Stack
from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.record.scopes import Called
from embertide.tracing.record.traced import Node
from embertide.tracing.record.user_code import refuse


@dataclass
class Lowered:
    """A program, and which recorded node each of its tensors stands for.

    Attributes:
        origins: name of a tensor -> the node whose value it has.
        places: name of a tensor -> ``file:line`` in the user's code that its step comes from.
        read: node type -> the first columns of the parts of its input that the program reads.
    """

    program: Program
    layers: tuple[LayerName, ...]
    origins: dict[str, Node]
    places: dict[str, str]
    read: dict[str, frozenset[int]]


@dataclass
class Lowering:
    """The program as far as it is written.

    Attributes:
        types: of the graph.
        emit: makes the step of operations that wait for it.
        last: node type -> its latest tensor since the layer began.
        means: name of a mean over all nodes -> the tensor that it is of.
        learned: node types with embedding tables.
        nodes: those that the results need, in order.
        calls: name of a layer and identity of its module -> its result of each node type.
        places: name of a tensor -> the line of the user's code that its step comes from.
    """

    module: nn.Module
    types: GraphTypes
    emit: Callable[[Lowering, Pending], NodeRows]
    b: ProgramBuilder
    weights: Weights
    values: dict[Node, Any] = field(default_factory=dict)
    origins: dict[str, Node] = field(default_factory=dict)
    layers: list[LayerName] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    means: dict[str, str] = field(default_factory=dict)
    learned: frozenset[str] = frozenset()
    nodes: Sequence[Node] = ()
    calls: dict[tuple[str, int], dict[str, str]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    _scope: str | None = None

    def rows(self, node: Node, value: Any) -> NodeRows:
        """A value that must have one row for each node."""
        if isinstance(value, Pending):
            with self.b.of_type(value.node.of), self._placing(value.node):
                rows = self.emit(self, value)
            self._keep(value.node, rows)
            return rows
        if isinstance(value, NodeRows):
            return value
        if isinstance(value, Stack) and value.dim == 1:
            return NodeRows(self.b.concat(tuple(self.name(part) for part in value.parts)))
        if isinstance(value, Stack):
            raise refuse(
                node.where, f"{node.op} of a stack is not known; reduce it first: sum, mean or max"
            )
        raise refuse(
            node.where,
            f"{node.op} takes a tensor that comes from no node features; give it one that does",
        )

    def name(self, rows: NodeRows) -> str:
        """The tensor's name, once its factor is multiplied in."""
        if rows.factor == 1.0:
            return rows.name
        scale = torch.full((self.b.widths[rows.name],), rows.factor, dtype=torch.float64)
        return self.affine(rows.name, self.derived("scale", scale), None)

    def affine(self, x: str, scale: str | None, shift: str | None) -> str:
        """Rows times a parameter, plus another.

        A single column, such as a degree, is a row-wise step, which no grid cuts into slices.
        """
        if self.b.widths[x] > 1:
            return self.b.affine(x, scale, shift)
        lines, params = ["v0 = reshape(x0, [1])"], list[str]()
        for operation, name in (("mul", scale), ("add", shift)):
            if name is not None:
                lines.append(f"v{len(lines)} = {operation}(v{len(lines) - 1}, p{len(params)})")
                params.append(name)
        lines.append(f"out = reshape(v{len(lines) - 1}, [1])")
        return self.b.row_wise((x,), tuple(lines), tuple(params), 1)

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

    def begin(self, scope: Called | None) -> None:
        """Begin a sum over edges; all sums in one call of a module share a layer graph.

        What was before the first one is a separate layer. A part of a statistic over all edges,
        which has no scope, is no layer.
        """
        if scope is None or scope.name == self._scope:
            return
        if self.layers:
            self._finish()
        elif self.last:
            self.layers.append(LayerName("", "row-wise", False))
            self._finish()
        self.b.begin(True)
        self.layers.append(LayerName(scope.path, scope.kind, True))
        self._scope = scope.name

    def over(self, relation: str) -> AbstractContextManager[None]:
        """The steps that are written within it go over the edges of a relation."""
        return self.b.over(Relation.parse(relation)) if relation else nullcontext()

    @contextmanager
    def keeping_read(self, wanted: Iterable[str]) -> Iterator[dict[str, str]]:
        """Drop steps written within it that no wanted result reads.

        Args:
            wanted: node types of the results.

        Yields:
            To be filled: node type -> the name of its result.
        """
        start, before, results = len(self.b.steps), set(self.weights.params), dict[str, str]()
        yield results
        kept = _read(self.b.steps[start:], {results[name] for name in wanted})
        dropped = {step.out for step in self.b.steps[start:]} - {step.out for step in kept}
        self.b.steps[start:] = kept
        self.b.widths = {
            name: width for name, width in self.b.widths.items() if name not in dropped
        }
        read = {name for step in self.b.steps for name in step.param_names()}
        for name in set(self.weights.params) - before - read:
            del self.weights.params[name]

    @contextmanager
    def _placing(self, node: Node) -> Iterator[None]:
        """Record that steps written within it come from the line of a node.

        The steps of a node that is lowered within it keep their own line.
        """
        start = len(self.b.steps)
        yield
        for step in self.b.steps[start:]:
            self.places.setdefault(step.out, node.where)

    def _finish(self) -> None:
        self.b.finish(self.last)
        self.last, self._scope = {}, None

    def run(self, outputs: Mapping[str, Node], lower: Callable[[Lowering, Node], Any]) -> Lowered:
        """The program whose results are the outputs: all nodes that they need, in order.

        Args:
            outputs: key of a result -> what it is.
            lower: gives the value of one node.

        Raises:
            ModelError: a parameter has another shape than its convolution expects, or nothing
                reads the graph's features.
        """
        self.nodes = nodes = needed(*outputs.values())
        for node, following in zip(nodes, _layers_ahead(nodes), strict=True):
            if following is not None and following.name in node.within:
                self.begin(following)
            if node.edges:
                continue
            if node.op == "input":
                self.values[node] = NodeRows(self.b.inputs[node.args[1]])
                continue
            with self.b.of_type(node.of), self._placing(node), _refusing(node):
                self._keep(node, lower(self, node))
        results = dict[str, str]()
        for key, node in outputs.items():
            with self._placing(node):
                results[key] = self.name(self.rows(node, self.values.get(node)))
        where, files = next(iter(outputs.values())).where, set(self.b.inputs.values())
        if files.issuperset(results.values()) and not self.learned.issuperset(
            map(node_type_of, outputs)
        ):
            raise refuse(where, "forward returns its features as they are; there is no model")
        results = {
            key: self._copied(node_type_of(key), name) if name in files else name
            for key, name in results.items()
        }
        return self._finished(results, _parts_read(nodes, outputs.values()))

    def _copied(self, node_type: str, name: str) -> str:
        """The rows of the inputs as a result, which a program makes by a step."""
        width = self.b.widths[name]
        with self.b.of_type(node_type):
            return self.b.row_wise((name,), (f"out = reshape(x0, [{width}])",), (), width)

    def _keep(self, node: Node, value: Any) -> None:
        self.values[node] = value
        if isinstance(value, NodeRows):
            if not node.part:
                # The latest comes last, so that it stands for the layer.
                self.last.pop(node.of, None)
                self.last[node.of] = value.name
            if value.factor == 1.0:
                self.origins.setdefault(value.name, node)

    def _finished(self, results: dict[str, str], read: dict[str, frozenset[int]]) -> Lowered:
        if not self.layers:
            self.layers.append(LayerName("", "row-wise", False))
        self.last = {node_type_of(key): name for key, name in results.items()}
        self._finish()
        if self.weights.differences:
            differences = ", ".join(
                f"{key} is {got}, not {want}" for key, want, got in self.weights.differences
            )
            raise ModelError(f"the module's parameters are not its convolutions': {differences}")
        steps = _read(self.b.steps, {*results.values(), *self.b.outputs})
        wanted = {name for step in steps for name in step.reads()} | set(results.values())
        program = Program(
            steps=steps,
            params=self.weights.params,
            widths=self.b.widths,
            layers=self.b.layer + 1,
            inputs={key: name for key, name in self.b.inputs.items() if name in wanted},
            results=results,
            outputs=tuple(self.b.outputs),
        )
        return Lowered(program, tuple(self.layers), self.origins, self.places, read)


@contextmanager
def _refusing(node: Node) -> Iterator[None]:
    """Within it, an error in a handler becomes a message that names the line of the operation."""
    try:
        yield
    except (IndexError, TypeError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        shape = list(node.value.shape) if isinstance(node.value, Tensor) else "several tensors"
        raise refuse(
            node.where,
            f"torch's {node.op} with these arguments, which gives {shape}, is not supported in"
            " export; use its simplest form, or return what comes before",
        ) from error


def _parts_read(nodes: Sequence[Node], outputs: Iterable[Node]) -> dict[str, frozenset[int]]:
    """Node type -> the first columns of the parts of its input that some nodes read, or are."""
    read: dict[str, set[int]] = {output.of: {0} for output in outputs if output.op == "input"}
    for node in nodes:
        for source in node.sources():
            if source.op == "input" and source.args[0] == "x":
                start = node.args[1] if node.op == "columns" else 0
                read.setdefault(source.of, set()).add(start)
    return {node_type: frozenset(starts) for node_type, starts in read.items()}


def _layers_ahead(nodes: Sequence[Node]) -> list[Called | None]:
    """The layer of the next sum over edges for each node; a sum's own layer for itself."""
    ahead: list[Called | None] = []
    following = None
    for node in reversed(nodes):
        following = next((arg for arg in node.args if isinstance(arg, Called)), following)
        ahead.append(following)
    return ahead[::-1]


def _read(steps: list[Step], wanted: set[str]) -> tuple[Step, ...]:
    """The steps that a wanted tensor needs."""
    kept: list[Step] = []
    for step in reversed(steps):
        if step.out in wanted:
            kept.append(step)
            wanted |= set(step.reads())
    return tuple(reversed(kept))


def needed(*outputs: Node) -> list[Node]:
    """The nodes that lead to some outputs, in the order in which they were recorded."""
    return _leading_to(outputs, Node.sources)


def along_edges(*messages: Node) -> list[Node]:
    """The same as `needed` for messages, back to where rows of nodes are taken to edges."""
    return _leading_to(messages, lambda node: [source for source in node.sources() if source.edges])


def _leading_to(nodes: Iterable[Node], sources: Callable[[Node], list[Node]]) -> list[Node]:
    reached, left = set(nodes), list(nodes)
    while left:
        new = set(sources(left.pop())) - reached
        reached |= new
        left.extend(new)
    return sorted(reached, key=lambda node: node.number)


def bound_names(module: nn.Module) -> dict[int, str]:
    """The stored name of every parameter and buffer, by identity."""
    both: Iterable[tuple[str, Tensor]] = (*module.named_parameters(), *module.named_buffers())
    return {id(tensor): name for name, tensor in both}
