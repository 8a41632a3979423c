"""Relations: what an edge type is called, with the node types that it leads from and to."""

from __future__ import annotations

from dataclasses import dataclass

_BETWEEN = ":"
"""No name of a type holds it."""


@dataclass(frozen=True, order=True)
class Relation:
    """Source type, edge type and destination type, such as ``user:buys:item``."""

    source: str
    name: str
    destination: str

    def __str__(self) -> str:
        return _BETWEEN.join((self.source, self.name, self.destination))

    @property
    def within(self) -> bool:
        """Whether both ends are of one node type, so that a node can be its own neighbour."""
        return self.source == self.destination

    def reversed(self, name: str) -> Relation:
        """The relation that has every edge the other way round."""
        return Relation(self.destination, name, self.source)

    @classmethod
    def parse(cls, text: str) -> Relation:
        """The relation of that text.

        Raises:
            ValueError: it has not three parts.
        """
        source, name, destination = text.split(_BETWEEN)
        return cls(source, name, destination)


def ends_of(relation: str) -> tuple[str, str]:
    """Source and destination type of a relation, as a program names it: "" where there is one."""
    if not relation:
        return "", ""
    ends = Relation.parse(relation)
    return ends.source, ends.destination
