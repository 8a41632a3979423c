"""What a worker knows of the graph that it reads, as the stages find it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from embertide.facts.telemetry.chosen import ChosenFacts
from embertide.facts.telemetry.kept import KeptFacts
from embertide.facts.telemetry.omissions import Omissions
from embertide.facts.telemetry.refresh import RefreshFacts
from embertide.facts.telemetry.report import RelationCount, TypeCount


@dataclass
class GraphFacts:
    """Sizes of the graph and of this worker's share; 0 or empty until they are known.

    Attributes:
        nodes, edges: N and E of the whole graph.
        types, relations: what was read of each, the same on every worker.
        read: rows of each edge type and node type, as the version's manifest has them.
        omissions: what the run does without, the same on every worker.
        kept: layers that this run kept or took over.
        refresh: rows that this run took over of the version before.
        chosen: the nodes whose rows alone are wanted.
        own_nodes, own_edges: of this worker's sub-range.
    """

    nodes: int = 0
    edges: int = 0
    types: list[TypeCount] = field(default_factory=list)
    relations: list[RelationCount] = field(default_factory=list)
    read: dict[str, Any] = field(default_factory=dict)
    omissions: Omissions = field(default_factory=Omissions)
    own_nodes: int = 0
    own_edges: int = 0
    kept: KeptFacts = field(default_factory=KeptFacts)
    refresh: RefreshFacts = field(default_factory=RefreshFacts)
    chosen: ChosenFacts = field(default_factory=ChosenFacts)
