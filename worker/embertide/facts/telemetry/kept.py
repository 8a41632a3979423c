"""What a run kept of its layers for a next attempt, and what it took over of an earlier one."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from embertide.facts.telemetry.format import human_bytes
from embertide.plain import Plain

_log = logging.getLogger("embertide")


@dataclass
class KeptFacts(Plain):
    """Layers are counted from 1.

    Attributes:
        resumed: the layer after which the run went on; 0: it computed all.
        version: the run that had kept that layer, by the version it published or was to; "": none.
        layers: how many the model has; 0: unknown.
        kept: the layers that it kept.
        kept_bytes: of the rows of these, of all workers.
        written_bytes: what was written for them; an earlier run has kept the rest. None: all.
        graph: relations of which it has read a graph that was kept, and not the edges.
        graph_bytes: of the graph that it kept for the next run, of all workers.
        graph_written_bytes: what was written for it.
        wait_seconds: that this worker waited for what it wrote.
        problems: why a layer was not kept, or one that was kept was not used.
    """

    resumed: int = 0
    version: str = ""
    layers: int = 0
    kept: list[int] = field(default_factory=list)
    kept_bytes: int = 0
    written_bytes: int | None = None
    graph: list[str] = field(default_factory=list)
    graph_bytes: int = 0
    graph_written_bytes: int = 0
    wait_seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def keeps(self, layer: int, size: int, written: int) -> None:
        """A layer of so many bytes, of which some were written, is kept."""
        self.kept.append(layer)
        self.kept_bytes += size
        self.written_bytes = (self.written_bytes or 0) + written

    def lost(self, layer: int, size: int, written: int) -> None:
        """A layer of so many bytes, of which some were written, that was to be kept is not."""
        self.kept.remove(layer)
        self.kept_bytes -= size
        self.written_bytes = (self.written_bytes or 0) - written

    def none(self) -> None:
        """Nothing that was kept is there any more."""
        self.kept.clear()
        self.kept_bytes = self.graph_bytes = self.graph_written_bytes = 0
        self.written_bytes = None

    def warn(self, problem: str) -> None:
        """Note a problem, and log it."""
        self.problems.append(problem)
        _log.warning("%s", problem)

    @property
    def sentences(self) -> list[str]:
        """For people."""
        found = []
        if self.resumed:
            found.append(f"resumed after layer {self.resumed} of {self.layers}")
        if self.kept:
            numbers = ", ".join(map(str, self.kept))
            text = f"kept layer {numbers} for a next attempt or run: {human_bytes(self.kept_bytes)}"
            found.append(text + self._written)
        if self.graph:
            found.append(f"kept graph read in place of the edges of {', '.join(self.graph)}")
        if self.graph_bytes:
            text = f"kept the graph for a next attempt or run: {human_bytes(self.graph_bytes)}"
            written = human_bytes(self.graph_written_bytes) if self.graph_written_bytes else "none"
            whole = self.graph_written_bytes == self.graph_bytes
            found.append(text if whole else f"{text}, of which {written} were written now")
        return found

    @property
    def _written(self) -> str:
        if self.written_bytes is None or self.written_bytes >= self.kept_bytes:
            return ""
        return f", of which {human_bytes(self.written_bytes)} were written now"
