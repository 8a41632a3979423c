"""The steps of a program as they are written: names, widths, layer graphs, node types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from embertide.errors import ModelError
from embertide.program.steps import Step
from embertide.spec.relations import Relation

INPUT = "x"
"""The features of a program of one node type, which does not name it."""


class StepList:
    """The steps so far, and the results of the layers of ``model.yaml``.

    Args:
        inputs: columns of the features, 0 where they are not known yet: of the one node type, or
            of each by its name.

    Attributes:
        inputs: node type -> the tensor of its features; the type is "" where there is one.
        relation: of the steps over edges that are being written; "" where there is one.
        node_type: of the rows that are being written.
        place: what names of steps begin with, after the layer's number.
        results: of each finished layer, node type -> tensor.
        outputs: of each finished layer its result; of several node types, its last tensor.
        convolved: those of the layers that read edges, one for each layer graph.
    """

    def __init__(self, inputs: int | Mapping[str, int]) -> None:
        by_type = {"": inputs} if isinstance(inputs, int) else inputs
        self.inputs = {name: f"{name}.{INPUT}" if name else INPUT for name in by_type}
        self.steps: list[Step] = []
        self.widths = {self.inputs[name]: width for name, width in by_type.items()}
        self.results: list[dict[str, str]] = []
        self.outputs: list[str] = []
        self.convolved: list[dict[str, str]] = []
        self.relation = self.node_type = self.place = ""
        self._graphs = 0

    @property
    def layer(self) -> int:
        """The layer graph that new steps belong to."""
        return max(0, self._graphs - 1)

    def begin(self, reads_edges: bool) -> None:
        """Start the next layer; one that reads edges has a layer graph of its own."""
        self._graphs += reads_edges

    def finish(self, out: str | dict[str, str]) -> None:
        """Name the layer's result: a tensor, or one for each node type."""
        made = {"": out} if isinstance(out, str) else dict(out)
        self.results.append(made)
        self.outputs.append(made[""] if "" in made else self.steps[-1].out)
        if self._graphs > len(self.convolved):
            self.convolved.append(made)

    def output_of(self, earlier: Literal["input"] | int) -> str:
        """The tensor of an earlier layer, or of the features, of the nodes being written."""
        made = self.inputs if earlier == "input" else self.results[earlier]
        if self.node_type not in made:
            where = "the features" if earlier == "input" else f"layer {earlier}"
            raise ModelError(
                f"layer {len(self.results)} reads {where} of node type {self.node_type!r}, which"
                " has none there"
            )
        return made[self.node_type]

    def learn(self, name: str, width: int) -> None:
        """The columns of a tensor whose parameters tell them, where they are not known yet."""
        self.widths[name] = self.widths[name] or width

    @contextmanager
    def of_type(self, node_type: str) -> Iterator[None]:
        """Write steps on the nodes of a type."""
        before = self.node_type, self.place
        self.node_type = self.place = node_type
        yield
        self.node_type, self.place = before

    @contextmanager
    def over(self, relation: Relation) -> Iterator[None]:
        """Write steps over the edges of a relation, whose results are of its destination type."""
        with self.of_type(relation.destination):
            self.relation, self.place = str(relation), relation.name
            yield
            self.relation = ""

    def _fresh(self, kind: str) -> str:
        """A name that tells layer, place and kind: ``2.linear``, ``2.item.linear_1``."""
        stem = ".".join(filter(None, (str(len(self.results)), self.place, kind)))
        name, count = stem, 0
        while name in self.widths:
            count += 1
            name = f"{stem}_{count}"
        return name

    def _append(self, step: Step, width: int) -> str:
        self.steps.append(step)
        self.widths[step.out] = width
        return step.out
