"""Running a module's ``forward`` on a random graph: as it is, or recorded."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from embertide.errors import EmbertideError, ModelError
from embertide.models.folder import Library
from embertide.spec.result_names import result_key
from embertide.tracing.dgl.frames import Field
from embertide.tracing.dgl.graph import RecordingGraph
from embertide.tracing.dgl.homogeneous import TogetherGraph
from embertide.tracing.dgl.real_graph import real_graph
from embertide.tracing.forward.hints import hint
from embertide.tracing.forward.hooks import has_hooks, raising
from embertide.tracing.forward.module_calls import recorded
from embertide.tracing.forward.passed import batch_of, by_type, data_of, described, of_one_type
from embertide.tracing.forward.results import HOW_TO_CHOOSE, Returned, returned
from embertide.tracing.record.adjacency import Adjacency, matrix
from embertide.tracing.record.arguments import KEPT, arguments_of, as_called, keeping, left_out
from embertide.tracing.record.graphs import GraphTypes, RandomGraph, as_passed
from embertide.tracing.record.precision import computing_in
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.roles import ALL
from embertide.tracing.record.scopes import Scopes
from embertide.tracing.record.tables import Tables, columns_of, filled, parts_of_input
from embertide.tracing.record.traced import Node, Traced, plain
from embertide.tracing.record.user_code import place_of, refuse
from embertide.tracing.typed.all_edges import AllEdges
from embertide.tracing.typed.homogeneous import separated, spans

_NORM: Field = ("norm", ALL)


@dataclass(frozen=True)
class Subject:
    """A module and how it is called.

    Attributes:
        module: in eval mode and float64.
        roles: argument -> role (`arguments.ROLES`).
        by_type: whether tensors are passed as dicts by type.
        numbered: whether those of all types are passed together, with a number for each type.
        tables: the embedding tables of each node type that has some.
        fields: what it calls the job's own tensors in a graph of DGL's, once it was recorded.
        doubled: whether its parameters were float64 as it was trained.
        results: names of its results that the user gives; () where its own names are used.
    """

    module: nn.Module
    roles: dict[str, str]
    by_type: bool = False
    numbered: bool = False
    tables: Tables = field(default_factory=dict)
    fields: dict[Field, str] = field(default_factory=dict)
    doubled: bool = False
    results: tuple[str, ...] = ()

    @property
    def library(self) -> Library:
        """The library whose modules it consists of."""
        kinds = (kind for part in self.module.modules() for kind in type(part).__mro__)
        packages = {kind.__module__.partition(".")[0] for kind in kinds}
        if "dgl" in packages or {"graph", "blocks"} & set(self.roles.values()):
            return "dgl"
        return "pyg" if "torch_geometric" in packages else "torch"

    @property
    def weights_are_optional(self) -> bool:
        """Whether it also runs on a graph without edge weights."""
        name = next((name for name, role in self.roles.items() if role == "edge_weight"), None)
        return name is not None and not arguments_of(self.module)[name]

    def fresh(self) -> Subject:
        """The same on a copy that was never called; parameters are shared."""
        shared = {id(parameter): parameter for parameter in self.module.parameters()}
        return replace(self, module=copy.deepcopy(self.module, shared))

    def single(self) -> Subject:
        """The same on a copy in float32."""
        return replace(self, module=copy.deepcopy(self.module).float())

    @property
    def left_out(self) -> tuple[str, ...]:
        """Arguments that are not passed, so that their defaults hold."""
        return left_out(self.module, self.roles)

    def forward(self, graph: RandomGraph, weighted: bool) -> list[Returned]:
        """What it gives on a graph, untouched.

        Raises:
            ModelError: it raised an error.
        """
        edges = graph.edges
        values: dict[str, dict[str, Tensor]] = {
            "x": self._passed(graph.types, self._features(graph)),
            "node_id": {name: graph.numbers(name) for name in self.tables},
            "edge_index": {name: own.edge_index for name, own in edges.items()},
            "edge_weight": {
                name: own.weight for name, own in edges.items() if graph.types.weighs(name)
            },
        }
        if "adjacency" in self.roles.values():
            values["adjacency"] = {
                name: matrix(own, graph.shape(name)) for name, own in edges.items()
            }
        merged = graph.merged if self.numbered else {}
        if graph.types.edge_features:
            values["edge_features"] = {
                name: as_passed(own.features, graph.types.edge_categories.get(name, {}))
                for name, own in edges.items()
                if own.features is not None
            }
        if not weighted:
            values.pop("edge_weight")
            merged.pop("edge_weight", None)
        real = self._real(graph) if self._takes_dgl else None
        with filled(self.module, self.tables, graph.x):
            out = returned(self._call(graph, values, merged, real), [*graph.counts], self.results)
        if not self.numbered or len(graph.counts) < 2:
            return out
        return [part for result in out for part in _parts(graph, result)]

    def record(self, graph: RandomGraph) -> dict[str, Node]:
        """What it does on a graph with edge weights: the node of each result, by key.

        Raises:
            ModelError: it raised an error, or does what cannot be recorded.
        """
        normed = _NORM in self.fields
        outputs = self._record(graph)
        # That edges have a norm shows when it is read, which convolutions before may rely on.
        return self._record(graph) if _NORM in self.fields and not normed else outputs

    def record_edges(self, graph: RandomGraph) -> Node:
        """What it gives for each edge of a graph.

        Raises:
            ModelError: it gives something else.
        """
        _, out = self._recorded(graph)
        value = out[0].value if len(out) == 1 else None
        if not isinstance(value, Traced) or not value.node.edges:
            raise refuse(
                "",
                f"the decoder gives {described(value)}; it must give one tensor with a row for each"
                " pair",
            )
        return value.node

    def _record(self, graph: RandomGraph) -> dict[str, Node]:
        recording, out = self._recorded(graph)
        if out and all(map(_is_of_all_types, out)):
            return separated(recording, {result.name: result.value.node for result in out})
        return self._outputs(graph, out)

    def _recorded(self, graph: RandomGraph) -> tuple[Recording, list[Returned]]:
        """What it returns, with the operations that made it."""
        recording = Recording(graph, Scopes(self.module, graph.types.typed), self.tables)
        values: dict[str, Any] = {
            "x": self._passed(graph.types, recording.features),
            "node_id": recording.numbers,
            "edge_index": recording.edge_index,
            "edge_weight": recording.edge_weight,
            "adjacency": {
                name: Adjacency(recording, recording.edges[name], weight)
                for name, weight in recording.edge_weight.items()
            },
        }
        if graph.types.edge_features:
            values["edge_features"] = recording.edge_features
        merged: dict[str, Any] = {}
        if self.numbered:
            merged = {
                role: recording.tape.input(role, value, ALL) for role, value in graph.merged.items()
            }
            AllEdges.of(recording, merged["edge_index"], plain(merged["edge_weight"]))
        stands_for = self._stands_for(recording, merged) if self._takes_dgl else None
        with recorded(self.module, recording), filled(self.module, self.tables, recording.x):
            out = returned(
                self._call(graph, values, merged, stands_for), [*graph.counts], self.results
            )
        if stands_for is not None:
            self.fields.update(stands_for.fields)
            self._check_fields()
        return recording, out

    def _stands_for(
        self, recording: Recording, merged: dict[str, Any]
    ) -> RecordingGraph | TogetherGraph:
        """What stands for DGL's graph in a call of ``forward``."""
        if self.numbered:
            tensors: dict[str, Any] = {"x": next(iter(recording.features.values()), None)} | merged
            return TogetherGraph(recording, tensors, normed=_NORM in self.fields)
        return RecordingGraph(real_graph(recording.graph, {}, {}), recording)

    def _real(self, graph: RandomGraph) -> Any:
        """A graph of DGL's with the job's own tensors."""
        x = self._features(graph)
        return real_graph(graph, self.fields, x, numbered=self.numbered)

    def _features(self, graph: RandomGraph) -> dict[str, Tensor]:
        """Node type -> features, or the nodes' numbers where tables take the features' place."""
        passed = dict(graph.x)
        for name, of_type in self.tables.items():
            features, _ = parts_of_input(graph.x[name], of_type)
            passed[name] = graph.numbers(name) if features is None else features
        for name, categories in graph.types.categories.items():
            passed[name] = as_passed(passed[name], categories)
        return passed

    def _check_fields(self) -> None:
        """Refuse to read one tensor of the job's as an argument and from DGL's graph.

        Raises:
            ModelError: it is read both ways, perhaps as two different tensors.
        """
        for (kind, of), name in self.fields.items():
            role = "x" if kind == "ndata" else kind
            argument = next((argument for argument, has in self.roles.items() if has == role), None)
            if argument is not None and kind != "node_id":
                frame = "ndata" if kind == "ndata" else "edata"
                raise refuse(
                    "",
                    f"{type(self.module).__name__}.forward takes {argument} and reads"
                    f" g.{frame}[{name!r}]{f' of {of}' if of else ''}, and both are the job's"
                    f" {role}; a job has one such tensor: read it one way, or take the columns of"
                    " both in one tensor and cut them apart in forward (x[:, :16])",
                )

    def _passed(self, types: GraphTypes, x: Mapping[str, Tensor]) -> dict[str, Any]:
        """The features that ``forward`` gets: by type, without numbers in the place of some."""
        return {
            of: features
            for of, features in x.items()
            if not (self.by_type and self._is_bare(types, of))
        }

    def _is_bare(self, types: GraphTypes, node_type: str) -> bool:
        """Whether a type has tables and no features."""
        tables = self.tables.get(node_type, ())
        return bool(tables) and types.nodes[node_type] == columns_of(tables)

    def _outputs(self, graph: RandomGraph, out: Sequence[Returned]) -> dict[str, Node]:
        """The node of each result, by key."""
        nodes: dict[str, Node] = {}
        for result in out:
            node = self._checked(graph, result, alone=len(out) == 1)
            nodes[result_key(node.of, result.name)] = node
        if not nodes:
            raise refuse("", f"{type(self.module).__name__}.forward returns nothing")
        return nodes

    def _checked(self, graph: RandomGraph, result: Returned, *, alone: bool) -> Node:
        """The node of a result.

        Raises:
            ModelError: it is no tensor with a row for each node of its type.
        """
        value = result.value
        leave_out = "" if alone else f". {HOW_TO_CHOOSE}"
        if isinstance(value, Traced) and value.node.edges:
            raise refuse(
                value.node.where,
                f"a tensor of the edges is returned{result.described}, or used among those of the"
                " nodes; sum it up at the nodes first (propagate, update_all)",
            )
        if isinstance(value, Traced) and value.node.whole:
            raise refuse(
                value.node.where,
                f"a row for the whole graph is returned{result.described}, a mean or sum over all"
                " nodes; embeddings are of each node: return what was pooled, by a method that"
                f" FILE.py:NAME.METHOD names{leave_out}",
            )
        if (
            isinstance(value, Traced)
            and result.node_type in (None, value.node.of)
            and value.shape[:1] == (graph.counts.get(value.node.of),)
        ):
            return value.node
        what = (
            "one tensor with a row for each node of a type, or a dict of them by node type"
            if graph.types.typed
            else "one tensor with a row for each node"
        )
        other = isinstance(value, Traced) and result.node_type not in (None, value.node.of)
        shown = f"rows of {value.node.of}" if other else described(value)
        raise refuse(
            "",
            f"{type(self.module).__name__}.forward returns {shown}{result.described}; it must"
            f" return {what}, which are the embeddings, or several of these by name, in a tuple or"
            " a dict: name a method that does, by FILE.py:NAME.METHOD, such as"
            f" models.py:Net.encode{leave_out}",
        )

    @property
    def _takes_dgl(self) -> bool:
        return bool({"graph", "blocks"} & set(self.roles.values()))

    def _call(
        self,
        random: RandomGraph,
        of_types: Mapping[str, Mapping[str, Any]],
        merged: Mapping[str, Any],
        graph: Any,
    ) -> Any:
        types, dtype = random.types, random.dtype
        values = by_type(of_types, types) if self.by_type else of_one_type(of_types, merged)
        arguments: dict[str, Any] = {}
        for name, role in self.roles.items():
            if role == "edge_weight" and role not in values:
                continue
            if role == "batch":
                arguments[name] = batch_of(self.module, random.counts, values.get("x"))
            elif role == "data":
                arguments[name] = data_of(values, types)
            elif role in ("graph", "blocks"):
                arguments[name] = graph if role == "graph" else _Blocks(graph)
            elif role not in values:
                raise refuse(
                    "",
                    f"{type(self.module).__name__}.forward takes {name}, but the graph has no"
                    f" {role}: {types}; give its columns in --graph, or name the table that takes"
                    " the features' place by --table",
                )
            else:
                arguments[name] = values[role]
        kept = {name: arguments.pop(name) for name in list(arguments) if name.startswith(KEPT)}
        named: Mapping[str, Any] = arguments
        placed, named = as_called(self.module, named) if has_hooks(self.module) else ((), named)
        try:
            with computing_in(dtype), keeping(self.module, kept):
                return self.module(*placed, **named)
        except EmbertideError as error:
            hook = raising(self.module, error.__traceback__)
            if hook is None or not isinstance(error, ModelError):
                raise
            raise ModelError(f"{error}. It is in {hook}; remove it if it changes nothing") from (
                error.__cause__
            )
        except Exception as error:
            name = type(self.module).__name__
            hook = raising(self.module, error.__traceback__)
            if hook is not None:
                raise refuse(
                    place_of(error.__traceback__),
                    f"{hook} failed on a small random graph with {type(error).__name__}: {error}."
                    f" {name} is called with ({', '.join(self.roles)}), of which those without a"
                    " default are given by position; do in forward what it does",
                ) from error
            raise refuse(
                place_of(error.__traceback__),
                f"{name}.forward failed on a small random graph with {type(error).__name__}:"
                f" {error}{hint(self.module, self.roles, self.tables, types, graph, error)}",
            ) from error


def _is_of_all_types(result: Returned) -> bool:
    """Whether a result has the rows of all node types, and no edges'."""
    return (
        isinstance(result.value, Traced)
        and result.value.node.of == ALL
        and not result.value.node.edges
    )


def _parts(graph: RandomGraph, result: Returned) -> list[Returned]:
    """A result of all node types together, split into one for each node type."""
    if not isinstance(result.value, Tensor) or result.node_type is not None:
        return [result]
    return [
        replace(result, node_type=n, value=result.value[span]) for n, span in spans(graph).items()
    ]


class _Blocks(list[Any]):
    """A list with as many blocks as are asked for: without sampling, each is the graph."""

    def __init__(self, graph: Any) -> None:
        super().__init__([graph] * 64)

    def __getitem__(self, _place: Any) -> Any:
        return super().__getitem__(0)
