"""A model as a small program: a list of steps over named node tensors.

Everything that describes a model ends in a :class:`Program`; the executor, the planner and the
reference know programs only, and what a step does is asked of the step.

Letters: N nodes, H heads, F width per head; every tensor is ``[N, width]`` with heads
concatenated (``H*F`` columns, head-major). The neighbours N(i) of node i are the sources of
its in-edges in the layer graph, with duplicates. Each step belongs to one convolution
layer, and a layer reads that layer's graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch

from embertide.errors import ModelError
from embertide.graph.views import EdgeNeeds
from embertide.program.steps.base import EdgeStep, Step
from embertide.program.steps.decoder import Decoder
from embertide.spec.result_names import node_type_of

WeightsOf = Literal["required", "optional"]
"""Whether a graph without edge weights is one that the model was not made for, or one on which its
own ``forward`` runs, too."""
Groups = Mapping[str, tuple[EdgeStep, ...]]
"""Result of a step -> the steps whose rows travel together, itself among them, in order. The first
brings the rows and makes the results of all: what the others read has to be there by then."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """Steps in order over tensors, each of the nodes of one type.

    ``inputs`` names for each node type that has features their tensor, ``results`` for each
    result its tensor, by the result's key (:mod:`embertide.spec.result_names`): the node type, and
    its name where the model has several results. A program of one node type does not name it: its
    type is "".
    ``widths`` gives the columns of every named tensor; ``params`` are float32 and contiguous.
    ``layers`` is the number of layer graphs; ``outputs`` names the result of each layer of
    ``model.yaml``, also of those that read no edges. ``weights`` says for relations whose weights
    are read whether edges must have some. ``decoder`` gives pairs of nodes scores, where
    the model has one.
    """

    steps: tuple[Step, ...]
    params: dict[str, torch.Tensor] = field(repr=False)
    widths: dict[str, int]
    layers: int
    weights: Mapping[str, WeightsOf] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=lambda: {"": "x"})
    results: dict[str, str] = field(default_factory=lambda: {"": "out"})
    digest: str = ""
    outputs: tuple[str, ...] = ()
    decoder: Decoder | None = None

    @cached_property
    def types(self) -> dict[str, str]:
        """Name of a tensor -> its node type.

        Raises:
            ModelError: a step reads tensors of types that do not fit together.
        """
        types = {name: node_type for node_type, name in self.inputs.items()}
        for step in self.steps:
            types[step.out] = step.node_type(types)
        return types

    @property
    def relations(self) -> list[str]:
        """The relations that steps read, in the order of their first use."""
        views = [step.edges for step in self.steps]
        return list(dict.fromkeys(view.relation for view in views if view is not None))

    @property
    def weighted_relations(self) -> list[str]:
        """Those of the relations whose edge weights steps read."""
        views = [step.edges for step in self.steps]
        read = {view.relation for view in views if view is not None and view.edge_weight}
        return [relation for relation in self.relations if relation in read]

    @property
    def one_loop_relations(self) -> list[str]:
        """Those of whose self-loops at a node steps read one, with its weight."""
        views = [step.edges for step in self.steps]
        weighted = [view for view in views if view is not None and view.edge_weight]
        return list(dict.fromkeys(view.relation for view in weighted if view.loops == "single"))

    @cached_property
    def groups(self) -> Groups:
        """Result of a step over edges -> the steps whose sources' rows travel with its own."""
        return find_groups(self.steps)

    def together(self, out: str) -> tuple[str, ...]:
        """The relations of such a group, in the order of its steps."""
        return tuple(step.relation for step in self.groups[out])

    @property
    def input(self) -> str:
        """The features of a program of one node type."""
        (only,) = self.inputs.values()
        return only

    @property
    def output(self) -> str:
        """The embeddings of a program of one node type."""
        (only,) = self.results.values()
        return only

    @property
    def input_width(self) -> int:
        """Columns the features must have."""
        return self.widths[self.input]

    @property
    def output_width(self) -> int:
        """Columns of the embeddings."""
        return self.widths[self.output]

    @property
    def result_widths(self) -> dict[str, int]:
        """Node type -> columns of the widest of its results."""
        widest: dict[str, int] = {}
        for key, name in self.results.items():
            node_type = node_type_of(key)
            widest[node_type] = max(widest.get(node_type, 0), self.widths[name])
        return widest

    @property
    def sliced_widths(self) -> dict[str, int]:
        """Tensor -> its width, of those whose columns a grid may slice.

        All but attention's scores, and rows that only steps read which want them whole.
        """
        cut = {name for step in self.steps for name in step.reads() if not step.wants_rows(name)}
        cut |= set(self.results.values())
        never = {step.out for step in self.steps if not step.sliced}
        never |= {step.out for step in self.steps if step.whole and step.out not in cut}
        return {name: width for name, width in self.widths.items() if name not in never}

    def only(self, results: Mapping[str, str]) -> Program:
        """The program that gives some of its tensors.

        Steps that these do not need are gone, and with them what only they read.

        Args:
            results: key -> name of the tensor.
        """
        steps = needed_for(results.values(), self.steps)
        needed = {*results.values(), *(name for step in steps for name in step.reads())}
        params = {name for step in steps for name in step.param_names()}
        return replace(
            self,
            steps=tuple(steps),
            params={name: value for name, value in self.params.items() if name in params},
            widths={name: width for name, width in self.widths.items() if name in needed},
            inputs={name: tensor for name, tensor in self.inputs.items() if tensor in needed},
            results=dict(results),
            outputs=tuple(name for name in self.outputs if name in needed),
        )

    def feeds_only(self, first: Step, second: Step) -> bool:
        """Whether a step's result is read by the next one, once, and ends no layer."""
        return first.out not in self.outputs and self.only_reader(second, first.out)

    def only_reader(self, step: Step, name: str) -> bool:
        """Whether a step reads a tensor, once, and nothing else does."""
        reads = [read for other in self.steps for read in other.reads()]
        return name in step.reads() and reads.count(name) == 1 and name not in self.results.values()

    @cached_property
    def only_gathered(self) -> frozenset[str]:
        """The tensors that steps read only at the sources of edges, and that are no result."""
        reads = Counter(name for step in self.steps for name in step.reads())
        gathered = Counter(name for step in self.steps for name in step.gathered)
        outputs = {step.out for step in self.steps}
        read = (outputs & reads.keys()) - set(self.results.values())
        return frozenset(name for name in read if reads[name] == gathered[name])

    def last_reads(self) -> dict[str, int]:
        """Name of a tensor -> the number of the last step that reads it; of results beyond all."""
        last = {name: at for at, step in enumerate(self.steps) for name in step.reads()}
        return last | dict.fromkeys(self.results.values(), len(self.steps))

    def wants_rows(self, name: str) -> bool:
        """Whether a step that reads the tensor needs whole rows, or it is a result."""
        return name in self.results.values() or any(
            step.wants_rows(name) for step in self.steps if name in step.reads()
        )

    def edge_needs(self, relation: str = "") -> EdgeNeeds:
        """Parts of a relation's layer graphs that the steps need besides the tile pattern."""
        over_edges = [
            (step, step.edges)
            for step in self.steps
            if step.edges is not None and step.edges.relation == relation
        ]
        pairs = any(step.pairs for step, _ in over_edges)
        kinds = {view[1:] if view.loops != "keep" else view.loops for _, view in over_edges}
        files = set(self.inputs.values())
        from_files = any(files.intersection(step.reads()) for step, _ in over_edges)
        positions = any(step.pairs and step.tiles for step, _ in over_edges)
        # Sums of several relations may find their sources together, and again with others.
        together = len(self.relations) > 1
        again = pairs or len(kinds) > 1 or from_files or together
        features = max((step.edge_columns for step, _ in over_edges), default=0)
        messages = any(step.pairs and not step.tiles for step, _ in over_edges)
        return EdgeNeeds(positions, again, features, messages)

    def edge_columns(self) -> dict[str, int]:
        """Relation -> columns of its edges' features, of those whose features steps read.

        Raises:
            ModelError: two steps want different numbers of the same edges.
        """
        columns: dict[str, int] = {}
        for step in self.steps:
            if step.edges is None or not step.edge_columns:
                continue
            relation = step.edges.relation
            if columns.setdefault(relation, step.edge_columns) != step.edge_columns:
                raise ModelError(
                    f"step {step.out!r} reads {step.edge_columns} features of each edge of"
                    f" {relation or 'the graph'}, but an earlier one {columns[relation]}"
                )
        return columns


def needed_for(names: Iterable[str], steps: Sequence[Step]) -> list[Step]:
    """Those of some steps that make some tensors, and those that these depend on; in order."""
    wanted, needed = set(names), list[Step]()
    for step in reversed(steps):
        if step.out in wanted:
            wanted.update(step.reads())
            needed.append(step)
    return needed[::-1]


def reads_together(step: Step) -> tuple[object, ...] | None:
    """Equal for steps of a layer that read rows of the same tensors in the same way, if any may."""
    if not isinstance(step, EdgeStep) or not step.relation or step.loops != "keep":
        return None
    return (type(step), step.layer, *step.gathered) if step.shares_rows else None


def find_groups(steps: Sequence[Step]) -> Groups:
    """Every step over edges with those whose rows travel with its own."""
    places = {step.out: at for at, step in enumerate(steps)}
    groups: list[list[EdgeStep]] = []
    by_key: dict[tuple[object, ...], list[list[EdgeStep]]] = {}
    for step in steps:
        if not isinstance(step, EdgeStep):
            continue
        key = reads_together(step)
        alike = [] if key is None else by_key.setdefault(key, [])
        for group in alike:
            if all(places.get(name, -1) < places[group[0].out] for name in step.reads()):
                group.append(step)
                break
        else:
            groups.append([step])
            alike.append(groups[-1])
    return {step.out: tuple(group) for group in groups for step in group}
