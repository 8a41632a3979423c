"""What a convolution reads at the two ends of its edges."""

from __future__ import annotations

from typing import NamedTuple


class Ends(NamedTuple):
    """The tensors of the source and the target type; one of one type is at both ends.

    ``target`` is "" where the target type has no tensor yet: it had no features.
    """

    source: str
    target: str

    @property
    def within(self) -> bool:
        """Whether both ends are the same rows."""
        return self.source == self.target

    @property
    def own(self) -> str:
        """The name of the target's columns among the sizes of a scope, where ``in`` is the
        source's."""
        return "in" if self.within else "own"
