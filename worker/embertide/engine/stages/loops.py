"""Counts the nodes of which one of several self-loops counts, while their graph is built."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from embertide.facts.telemetry.omissions import MergedLoops
from embertide.graph.exchange import Exchange
from embertide.grid import RowRanges
from embertide.kernels.csr import Csr, uneven_loops
from embertide.kernels.ids import Ids
from embertide.spec.edges import EdgeInput
from embertide.spec.relations import Relation

Found = tuple[int, int]
"""How many nodes, and the least dense id of them."""


@dataclass
class LoopCount:
    """What a rank finds of it in its rows.

    Attributes:
        steps_merge: relations of whose self-loops steps read one.
        found: relation -> what was found.
        by_job: the same, of those that ``selfLoops`` merges, which a kept graph has no more.
    """

    steps_merge: Collection[Relation] = ()
    found: dict[Relation, Found] = field(default_factory=dict)
    by_job: dict[Relation, Found] = field(default_factory=dict)

    def see(self, relation: Relation, edge: EdgeInput | None, csr: Csr) -> None:
        """Some of our rows, as they are before ``selfLoops`` adds loops.

        Args:
            edge: None: they have what it adds already.
        """
        by_job = edge is not None and edge.self_loops == "addRemaining"
        if not by_job and relation not in self.steps_merge:
            return
        # Convolutions give the loops that they add features of their own.
        rows = uneven_loops(csr if by_job else csr.without_features())
        if len(rows):
            self.add(relation, (len(rows), csr.first + int(rows[0])), by_job=by_job)

    def add(self, relation: Relation, more: Found, *, by_job: bool) -> None:
        """What some of the rows have."""
        for found in (self.found, *([self.by_job] if by_job else [])):
            nodes, first = found.get(relation, (0, more[1]))
            found[relation] = nodes + more[0], min(first, more[1])

    def gather(
        self,
        exchange: Exchange,
        names: Mapping[str, tuple[RowRanges, Ids]],
    ) -> list[MergedLoops]:
        """What all ranks found. Collective: every rank must call.

        Args:
            names: node type -> which worker owns which nodes, and the ids of ours.
        """
        total = LoopCount()
        for theirs in exchange.all_objects({str(of): own for of, own in self.found.items()}):
            for relation, more in theirs.items():
                total.add(Relation.parse(relation), more, by_job=False)
        ours = {}
        for relation, (_, first) in total.found.items():
            ranges, ids = names[relation.destination]
            start, stop = ranges.worker(exchange.grid.rank)
            if start <= first < stop:
                ours[str(relation)] = str(ids[first - start])
        named = {of: name for own in exchange.all_objects(ours) for of, name in own.items()}
        return [
            MergedLoops(str(relation), nodes, named[str(relation)])
            for relation, (nodes, _) in sorted(total.found.items(), key=str)
        ]
