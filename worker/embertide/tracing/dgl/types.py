"""Types and sizes of a recorded graph, as DGL's modules ask for them."""

from __future__ import annotations

from typing import Any

from embertide.spec.relations import Relation
from embertide.tracing.record.counts import Count
from embertide.tracing.record.edges import Edges
from embertide.tracing.record.recording import Recording
from embertide.tracing.record.user_code import here, refuse

_UNNAMED = {"": "_N"}
"""DGL's name of the only node type."""


class GraphView:
    """Some relations of the recorded graph, in DGL's own order, and the node types at their ends.

    Attributes:
        real: DGL's graph, on which known convolutions run.
    """

    def __init__(
        self, real: Any, recording: Recording, relations: tuple[str, ...] | None = None
    ) -> None:
        self.real, self._recording = real, recording
        if relations is None:
            relations = recording.types.relations
            if recording.types.typed:
                relations = tuple(str(Relation(*triple)) for triple in real.canonical_etypes)
        self._relations = relations

    # -- types -------------------------------------------------------------------------------------

    @property
    def relation(self) -> str:
        """The only relation.

        Raises:
            ModelError: there are several.
        """
        if len(self._relations) > 1:
            raise refuse(
                here(),
                f"the graph has the relations {', '.join(self._relations)}; say which one:"
                " g[etype], or the argument etype",
            )
        return self._relations[0]

    @property
    def canonical_etypes(self) -> list[tuple[str, str, str]]:
        """Source type, edge type and destination type of each relation."""
        types = self._recording.types
        if not types.typed:
            return [("_N", "_E", "_N")]
        return [types.triple(relation) for relation in self._relations]

    @property
    def etypes(self) -> list[str]:
        """The edge types."""
        return [name for _, name, _ in self.canonical_etypes]

    def _types(self, *ends: int) -> list[str]:
        pairs = [self._recording.types.ends(relation) for relation in self._relations]
        if len(pairs) == len(self._recording.types.relations):
            return list(self._recording.types.nodes)
        return list(dict.fromkeys(pair[end] for pair in pairs for end in ends))

    @property
    def ntypes(self) -> list[str]:
        """The node types."""
        return [_UNNAMED.get(name, name) for name in self._types(0, 1)]

    @property
    def srctypes(self) -> list[str]:
        """Node types of sources."""
        return [_UNNAMED.get(name, name) for name in self._types(0)]

    @property
    def dsttypes(self) -> list[str]:
        """Node types of destinations."""
        return [_UNNAMED.get(name, name) for name in self._types(1)]

    @property
    def is_homogeneous(self) -> bool:
        """Whether it has one node type and one edge type."""
        return len(self._relations) == 1 and len(self._types(0, 1)) == 1

    def to_canonical_etype(self, etype: Any) -> tuple[str, str, str]:
        """The triple of an edge type's name."""
        return self._recording.types.triple(self._relation(etype))

    def _relation(self, etype: Any) -> str:
        """The relation of an edge type, or of a triple; the only one of None."""
        if etype is None:
            return self.relation
        pairs = zip(self._relations, self.canonical_etypes, strict=True)
        matches = [name for name, triple in pairs if etype in (triple, triple[1])]
        if len(matches) != 1:
            raise refuse(
                here(),
                f"{etype!r} names {len(matches)} of the graph's relations, which are"
                f" {', '.join(self._relations)}; give all three names",
            )
        return matches[0]

    def _node_type(self, ntype: Any) -> str:
        # None is the only one, as DGL has it.
        name = "" if ntype == "_N" or (ntype is None and len(self.ntypes) == 1) else ntype
        if name not in self._recording.types.nodes:
            raise refuse(
                here(), f"the graph has no node type {ntype!r}; it has {', '.join(self.ntypes)}"
            )
        return str(name)

    # -- sizes -------------------------------------------------------------------------------------

    def num_nodes(self, ntype: Any = None) -> int:
        """The number of nodes of a type; without a type, of the only one."""
        return self._count(ntype, self._types(0, 1))

    def num_src_nodes(self, ntype: Any = None) -> int:
        """The same as `num_nodes`, of sources."""
        return self._count(ntype, self._types(0))

    def num_dst_nodes(self, ntype: Any = None) -> int:
        """The same as `num_nodes`, of destinations."""
        return self._count(ntype, self._types(1))

    number_of_nodes, number_of_src_nodes = num_nodes, num_src_nodes
    number_of_dst_nodes = num_dst_nodes

    def _count(self, ntype: Any, known: list[str]) -> int:
        names = known if ntype is None else [self._node_type(ntype)]
        return Count(sum(self._recording.graph.counts[name] for name in names))

    def num_edges(self, etype: Any = None) -> int:
        """The number of edges of a relation; without a relation, of the only one."""
        return Count(len(self._along(etype).own.src))

    number_of_edges = num_edges

    def in_degrees(self, *, etype: Any = None) -> Any:
        """[N] edges into each node of the destination type."""
        return self._along(etype).degree("in")

    def out_degrees(self, *, etype: Any = None) -> Any:
        """[N] edges out of each node of the source type."""
        return self._along(etype).degree("out")

    def _along(self, etype: Any) -> Edges:
        return self._recording.edges[self._relation(etype)]
