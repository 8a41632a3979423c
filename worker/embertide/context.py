"""What every stage of a run is given, on one worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

import torch

from embertide.facts.telemetry.graph_facts import GraphFacts
from embertide.facts.telemetry.progress import OnProgress, Progress
from embertide.facts.telemetry.transfers import Work
from embertide.graph.exchange import Exchange
from embertide.grid import Grid
from embertide.io.storage.protocol import Storage
from embertide.kernels.scratch import Scratch
from embertide.kernels.store import Store
from embertide.spec.manifest import EmbeddingJob


@dataclass(frozen=True)
class RunContext:
    """One worker's view of a run.

    Attributes:
        report: receives progress; only rank 0's is shown to the user.
        delivered: called when our part is written, before any other rank learns of it: from then
            on it may become visible, so only rank 0 may remove it.
        threads: how many this worker computes and reads with.
        work: counts the rows and edges that stages are done with.
        graph_facts: what the stages find out about the graph.
        ahead: called with the stage's fraction after a number of edges that are still to come.
        scratch: where the tensors of nodes are while parts of them are where layers are computed:
            on disk, or in host memory beside a GPU; None: all of them are where layers are.
        panel: columns of a tensor that are in memory at a time; 0 without ``scratch``.
        parts_bytes: that the largest parts of tensors take there at a time, and so may rows that
            are computed alone; 0 without ``scratch``.
        spills_graph: whether edges and the graph are in ``scratch`` too.
        span: the part of a stage that :meth:`progress` tells of; 0 to 1 is the whole stage.
    """

    job: EmbeddingJob
    exchange: Exchange
    storage: Storage
    report: OnProgress
    delivered: Callable[[], None] = lambda: None
    threads: int = 1
    work: Work = field(default_factory=Work)
    graph_facts: GraphFacts = field(default_factory=GraphFacts)
    ahead: Callable[[float, int], None] = lambda _until, _edges: None
    scratch: Store | None = None
    panel: int = 0
    parts_bytes: int = 0
    spills_graph: bool = False
    span: tuple[float, float] = (0.0, 1.0)

    @property
    def grid(self) -> Grid:
        """The grid as seen from this rank."""
        return self.exchange.grid

    @property
    def disk(self) -> Scratch | None:
        """Where edges and the graph are, where they are on disk; None: they are in memory."""
        return self.scratch if self.spills_graph and isinstance(self.scratch, Scratch) else None

    @property
    def device(self) -> torch.device:
        """Where dense tensors live."""
        return self.exchange.device

    def progress(self, stage: str, fraction: float, layer: int = 0, layers: int = 0) -> None:
        """Say how far a stage is, 0 to 1."""
        first, last = self.span
        self.report(Progress(stage, layer, layers, first + (last - first) * fraction))

    def parts(self, shares: Sequence[float]) -> list[RunContext]:
        """A context for each part of a stage; ``shares`` are what they take, by any measure."""
        ends = list(accumulate(shares, initial=0.0))
        whole = max(ends[-1], 1e-9)
        return [replace(self, span=(a / whole, b / whole)) for a, b in pairwise(ends)]
