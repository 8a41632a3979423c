"""The interface of a step: inputs, width, reference and execution.

A step is a frozen description of one operation on named node tensors. The same class has what it
reads, how wide its result is, its meaning (in float64, slowly), how it runs on a grid and what that
costs. A new kind of step is one file with one class; no other code asks for the kind of a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, get_args, get_type_hints

import torch

from embertide.errors import ModelError
from embertide.graph.views import EdgeView, Loops
from embertide.layouts import Shard
from embertide.program.steps.frontier import Far, Moved, Rows, Stale, Wants, join
from embertide.program.steps.op import Input, Op, Product, Reach, RowActivation
from embertide.spec.relations import ends_of

if TYPE_CHECKING:
    from embertide.program.steps.alive import Alive
    from embertide.program.steps.execution import Execution
    from embertide.program.steps.reference import Degrees, End, ReferenceRun
    from embertide.program.steps.shapes import Shapes

Read = Annotated[str, "read"]
"""A field that names a tensor which the step reads."""
Param = Annotated[str, "param"]
"""A field that names a parameter."""
Norms = Callable[[str], float]
"""A parameter's spectral norm, of a vector its largest magnitude."""

KINDS: dict[str, type[Step]] = {}
"""Every kind of step by the name that it has in a program's text."""


@dataclass(frozen=True, kw_only=True)
class Step(ABC):
    """``out`` is a fresh name; ``layer`` counts layer graphs from 0.

    A step that reads no edges belongs to the layer graph before it (the first, if there is none).
    """

    out: str
    layer: int

    kind_name: ClassVar[str]
    """The step's name in a program's text; abstract classes have none."""
    meaning: ClassVar[int] = 1
    """Raised where results get other bits, so that older checkpoints are not gone on from."""
    sliced: ClassVar[bool] = True
    """The result's columns may be cut among the slices of a grid."""
    whole: ClassVar[bool] = False
    """The result is whole rows, whose columns are cut if a step that reads them asks for it."""
    reads_rows: ClassVar[bool | tuple[str, ...]] = False
    """Whether tensors are read as whole rows, or the fields of those that are."""
    pairs: ClassVar[bool] = False
    """Both ends' whole rows are brought together at every edge of a sub-range."""
    reach: ClassVar[Reach] = Reach.ROW
    """How much of the other nodes a row of the result needs."""
    tiles: ClassVar[bool] = True
    """A step over edges reads those of the whole partition, with slices of columns."""

    exact: ClassVar[bool] = False
    """Whether :attr:`exact_alone` holds, whatever the step's fields are."""

    def __init_subclass__(cls, *, kind: str | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if kind is not None:
            assert kind not in KINDS, kind
            cls.kind_name = kind
            KINDS[kind] = cls

    # -- what it is ------------------------------------------------------------------------

    @classmethod
    def identity_facts(cls) -> dict[str, object]:
        """What a step computes is decided by these and its fields (:mod:`spec.identity`)."""
        return {"step": cls.kind_name, "meaning": cls.meaning}

    def reads(self) -> list[str]:
        """Names of the tensors that the step reads; one that is read twice, twice."""
        return _named(self, "read")

    def reads_at_sources(self) -> list[str]:
        """Those whose rows are read at the sources of a row's edges."""
        return []

    def reads_at_rows(self) -> list[str]:
        """Those whose rows are read at the row itself."""
        return self.reads()

    def param_names(self) -> list[str]:
        """Names of the parameters that the step reads."""
        return _named(self, "param")

    def node_type(self, types: dict[str, str]) -> str:
        """The node type of the result, by those of the tensors before it.

        Raises:
            ModelError: what the step reads is of types that do not fit together.
        """
        types_read = {types[name] for name in self.reads()}
        if len(types_read) > 1:
            names = ", ".join(sorted(types_read))
            raise ModelError(
                f"step {self.out!r} reads tensors of the node types {names} and no edges between"
                " them; a step on nodes stays within one type"
            )
        return types_read.pop()

    @property
    def edges(self) -> EdgeView | None:
        """The layer graph as the step sees it; None where it reads no edges."""
        return None

    @property
    def gathered(self) -> tuple[str, ...]:
        """The tensors whose rows a step over edges reads at their sources."""
        return ()

    @property
    def own_edges(self) -> EdgeView | None:
        """The layer graph whose edges of a row the step needs for that row; None: it needs none."""
        return self.edges

    @property
    def degrees_read(self) -> set[tuple[End, bool]]:
        """(end, whether weights are added up) of degrees that do not follow from a row's in-edges.

        Degrees of sources, and of out-edges.
        """
        return set()

    @property
    def degrees_counted(self) -> set[tuple[End, bool]]:
        """(end, whether weights are added up) of the degrees of a row's own node that the step
        reads, though it reads no rows of other nodes."""
        return set()

    @property
    def degrees_needed(self) -> set[tuple[End, bool]]:
        """All degrees that the step reads: also of targets of sums, which follow from in-edges."""
        return self.degrees_read | self.degrees_counted

    @property
    def edge_columns(self) -> int:
        """Columns of the edges' features that the step reads."""
        return 0

    @abstractmethod
    def width(self, shapes: Shapes) -> int:
        """Columns of the result.

        Raises:
            ModelError: what the step reads does not fit together.
        """

    @abstractmethod
    def reference(self, run: ReferenceRun) -> torch.Tensor:
        """The result [N, width] in float64, of whole tensors in one process."""

    def reference_source_factors(self, _degrees: Degrees) -> torch.Tensor | None:
        """[n] float64 by what the step multiplies nodes' rows as sources, by their degrees.

        Args:
            degrees: those of :attr:`degrees_read`.
        """
        return None

    @property
    def label(self) -> str:
        """The step as messages name it."""
        return f"{self.out} ({self.kind_name}, layer {self.layer + 1})"

    # -- which rows it reads, and how far it moves them --------------------------------------

    def wants(self, rows: Rows, at: Wants) -> dict[str, Rows]:
        """Tensor -> the rows of it that the step reads for some rows of its result.

        Collective where ``at.sources`` is.
        """
        if self.reach is Reach.GRAPH:
            return {name: at.every(name) for name in self.reads()}
        return dict.fromkeys(self.reads(), rows)

    def stale(self, at: Stale) -> Rows:
        """Rows of the result that differ from an earlier run's, or may, of nodes that it had.

        A row does where its features or its in-edges do, where a degree that it is multiplied by
        does, or where a row that it is made of does. Collective where ``at.targets`` is.
        """
        own, view = at.types[self.out], self.own_edges
        rows = at.degrees(self, own)
        for name in self.reads():
            if at.types[name] == own:
                rows = rows | at.rows[name]
        if view is not None and ends_of(view.relation)[1] == own:
            rows = rows | at.changes.edges[view.relation]
        return rows

    def gains(self, _norms: Norms) -> list[tuple[str, float]] | None:
        """How far a row of the result moves at most, for how far the same rows of what it reads do.

        Distances are Euclidean. None: it is not known, or rows of other nodes count.

        Returns:
            (name of a tensor that it reads, factor); one that is read twice, twice.
        """
        return None

    @property
    def has_bounds(self) -> bool:
        """Whether :meth:`moves` knows how far rows of the result move at most."""
        return self.gains(lambda _: 1.0) is not None

    def moves(self, at: Moved) -> Far:
        """How far our partition's rows of the result move at most.

        Of a step that :attr:`has_bounds`. Collective: every rank must call.
        """
        gains = self.gains(at.norm)
        assert gains is not None
        return Far.sum([at.ours(name).times(gain) for name, gain in gains])

    # -- how it runs -------------------------------------------------------------------------

    def wants_rows(self, name: str) -> bool:
        """Whether the step needs all columns of the rows of a tensor that it reads."""
        if isinstance(self.reads_rows, bool):
            return self.reads_rows
        return name in {getattr(self, field) for field in self.reads_rows}

    def place(self, op: Op, _at: Alive) -> Op:
        """Choose the layouts that an operation led by the step reads and makes.

        By default each tensor is read in the layout that the step wants, and the result is rows.
        """
        return op.placed(
            [Input(name, "rows" if self.wants_rows(name) else "tile") for name in self.reads()],
            "rows",
        )

    @abstractmethod
    def lower(self, execution: Execution, op: Op) -> Shard:
        """Our shard of the result of an operation that the step leads.

        Collective: every rank must call.
        """

    def values_per_edge(self, _widths: dict[str, int]) -> float:
        """Cost of an edge, in values of a plain sum over in-edges."""
        return 0.0

    def flops_per_node(self, _widths: dict[str, int]) -> float:
        """Floating-point operations of the matrix products, for each node."""
        return 0.0

    @property
    def exact_alone(self) -> bool:
        """With the native kernels, a row has the same bits whichever other rows are computed too.

        torch's functions may round the last columns of a block in another way than the others.
        """
        return self.exact

    def rows_at_once(self, _shapes: Shapes) -> int:
        """Rows that are computed together, from the first: products of other numbers of rows may
        be rounded in another way."""
        return 1

    # -- some columns of the result ----------------------------------------------------------

    def columns_together(self, _widths: Mapping[str, int], _slices: int) -> int:
        """Columns of a group of the result, which needs its own columns of what the step reads.

        Groups can be computed apart, and have the same bits so. 0: all columns are one group, or a
        slice of the grid ends within one.
        """
        return 0

    def columns_of(self, _name: str, columns: slice, _widths: Mapping[str, int]) -> slice:
        """The columns of a tensor that the step reads for some of its result: whole groups."""
        return columns

    def of_columns(self, _count: int, _widths: Mapping[str, int]) -> Step:
        """The step for so many columns of its result: whole groups."""
        return self

    # -- how passes may combine it with other steps -----------------------------------------------

    @property
    def product(self) -> Product | None:
        """The matrix product that the step is, if it is one."""
        return None

    def of_product(self, _x: str, _product: Product) -> Step | None:
        """A narrower step that makes the result of a product of ``x`` which is then never made.

        Of a step that reads the product and nothing else; None where there is none.
        """
        return None

    @property
    def added(self) -> str | None:
        """The parameter that the step adds to every row, if that is all it does."""
        return None

    @property
    def row_activation(self) -> RowActivation | None:
        """The activation that the step is, if a row can have it as it is written."""
        return None

    @property
    def summed(self) -> tuple[str, ...]:
        """The tensors whose sum the step is, if that is all it does."""
        return ()

    @property
    def commutes(self) -> bool:
        """``step(x @ W.T) == step(x) @ W.T``: it acts on rows, and on all columns alike."""
        return False


@dataclass(frozen=True, kw_only=True)
class Leader(Step):
    """A step whose rows can be finished as they are made: with a bias, an activation, factors.

    It runs with the steps after it that are fused with it, as one operation.
    """

    takes_product: ClassVar[bool] = False
    """Rows may also be multiplied with the weight of the product that follows."""

    @property
    def scales_sources(self) -> bool:
        """The step multiplies each row it reads by a factor, which its maker may do instead."""
        return False

    def source_factors(self, _execution: Execution) -> torch.Tensor | None:
        """[N/P] those factors of our rows, if it has any. Collective: every rank must call."""
        return None


@dataclass(frozen=True, kw_only=True)
class EdgeStep(Step):
    """A step over the edges of its layer's graph: out[i] from x[j] of the neighbours j in N(i).

    In a graph of several types ``relation`` names the edges, as ``source:name:destination``: j
    is of the source type, i of the destination type.

    The stored weights w_ij count when ``edge_weight`` is set and the graph has weights; else
    every edge counts 1.
    """

    x: Read
    loops: Loops = "keep"
    loop_weight: float = 1.0
    edge_weight: bool = False
    relation: str = ""

    reach: ClassVar[Reach] = Reach.NEIGHBOURS
    at_destination: ClassVar[tuple[str, ...]] = ()
    """Fields that name tensors of the destination type; all others are of the source type."""

    @property
    def edges(self) -> EdgeView:
        """The layer graph as the step sees it."""
        return EdgeView(self.layer, self.loops, self.loop_weight, self.edge_weight, self.relation)

    @property
    def passes(self) -> int:
        """How often it goes over all edges, each time for the rows that it has just made."""
        return 1

    def reads_at_sources(self) -> list[str]:
        """All but those of the destination type, and those that are read at both ends."""
        return list(Counter(self.reads()) - Counter(self.reads_at_rows()))

    def reads_at_rows(self) -> list[str]:
        """Those of the destination type."""
        names = [getattr(self, field) for field in self.at_destination]
        return [name for name in names if name is not None]

    def wants(self, rows: Rows, at: Wants) -> dict[str, Rows]:
        """Sources of edges too; a row is its own neighbour where the step adds self-loops."""
        source, own = ends_of(self.relation)
        frontier = rows
        for _ in range(self.passes):
            # Sums of sums read the same graph again, for the sources of the rows before.
            join(at.graphs, (self.layer, self.relation), frontier)
            reached = at.sources(self.relation, frontier)
            frontier = reached | frontier if source == own else reached
        wanted = {name: rows for name in self.reads() if at.types[name] == own}
        return wanted | dict.fromkeys(self.reads_at_sources(), frontier)

    def stale(self, at: Stale) -> Rows:
        """Also rows whose neighbours are stale, or have another factor."""
        source, own = ends_of(self.relation)
        rows, frontier = super().stale(at), torch.zeros_like(at.changes.new[source])
        if self.out not in at.scaled:
            frontier = at.degrees(self, source)
        for name in self.reads_at_sources():
            frontier = frontier | at.rows[name]
        for _ in range(self.passes):
            rows = rows | at.targets(self.relation, frontier)
            if source == own:
                # A row is its own neighbour where the step adds self-loops.
                rows = frontier = rows | frontier
        return rows

    @property
    def shares(self) -> tuple[float, ...] | None:
        """By what ``x`` and the rows after each pass are added up; None: the last are it."""
        return None

    def reference_pass(self, run: ReferenceRun, before: torch.Tensor) -> torch.Tensor:
        """The rows after a pass in float64, of those before it [N, D]."""
        return self.reference(replace(run, tensors={**run.tensors, self.x: before}))

    @property
    def shares_rows(self) -> bool:
        """Whether the rows it gathers may travel once for several such steps."""
        return False

    @property
    def gathered(self) -> tuple[str, ...]:
        """The tensors whose rows are read at the sources of edges, and travel to them."""
        return (self.x,)

    def node_type(self, types: dict[str, str]) -> str:
        """The destination type of the relation."""
        source, destination = ends_of(self.relation)
        at_destination = self.reads_at_rows()
        for name in self.reads():
            wanted = destination if name in at_destination else source
            if types[name] != wanted:
                raise ModelError(
                    f"step {self.out!r} over {self.relation or 'the edges'} reads {name!r} of node"
                    f" type {types[name]!r}, but needs one of {wanted!r}"
                )
        if self.loops not in ("keep", "none") and source != destination:
            raise ModelError(
                f"step {self.out!r} needs self-loops, but {self.relation} leads from one node type"
                " to another; only edges within one type can have them"
            )
        return destination


@dataclass(frozen=True, kw_only=True)
class TogetherStep(EdgeStep):
    """The first step of a group, whose sources' rows travel once, makes the results of all."""

    @property
    def shares_rows(self) -> bool:
        """True: relations have different targets and read the same sources."""
        return True

    @abstractmethod
    def lower_all(self, execution: Execution, steps: Sequence[Self]) -> list[Shard]:
        """Our shards of the results of a group. Collective: every rank must call."""

    def lower(self, execution: Execution, op: Op) -> Shard:
        """Collective: every rank must call."""
        if op.brings:
            execution.tensors.add(op.brings, self.lower_all(execution, self._alike(op.brings)))
        return execution.tensors.take(self.out)

    def _alike(self, steps: Sequence[EdgeStep]) -> list[Self]:
        return [step for step in steps if isinstance(step, type(self))]


def _named(step: Step, role: str) -> list[str]:
    """The names in all fields of a role, in order; fields may be tuples, or None."""
    names: list[str] = []
    for name in _fields(type(step), role):
        value = getattr(step, name)
        if value is not None:
            names += [value] if isinstance(value, str) else value
    return names


@cache
def _fields(kind: type[Step], role: str) -> tuple[str, ...]:
    """Names of the fields of a role."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(f.name for f in fields(kind) if _has_role(hints[f.name], role))


def _has_role(hint: Any, role: str) -> bool:
    """Whether a type, or one that it is made of, is marked with a role."""
    if role in getattr(hint, "__metadata__", ()):
        return True
    return any(_has_role(part, role) for part in get_args(hint))
