"""What every stage of a run is given, on one worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from embertide.grid import Grid
from embertide.primitives.exchange import Exchange
from embertide.spec.edges import EdgeInput
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.nodes import NodeInput
from embertide.storage.protocol import Storage
from embertide.telemetry.progress import OnProgress, Progress
from embertide.telemetry.transfers import Work


@dataclass(frozen=True)
class RunContext:
    """One worker's view of a run.

    Attributes:
        report: receives progress; only rank 0's is shown to the user.
        delivered: called when our part is written, before any other rank learns of it: from then
            on it may become visible, so only rank 0 may remove it.
        threads: how many this worker computes and reads with.
        work: counts the rows and edges that stages are done with.
        ahead: told the stage's fraction after a number of edges that it goes over from now on.
    """

    job: EmbeddingJob
    exchange: Exchange
    storage: Storage
    report: OnProgress
    delivered: Callable[[], None] = lambda: None
    threads: int = 1
    work: Work = field(default_factory=Work)
    ahead: Callable[[float, int], None] = lambda _until, _edges: None

    @property
    def grid(self) -> Grid:
        """The grid as seen from this rank."""
        return self.exchange.grid

    @property
    def device(self) -> torch.device:
        """Where dense tensors live."""
        return self.exchange.device

    @property
    def edges(self) -> EdgeInput:
        """The job's edge input; a job has one."""
        return self.job.spec.input.edges[0]

    @property
    def nodes(self) -> NodeInput:
        """The job's node input; a job has one."""
        return self.job.spec.input.nodes[0]

    def progress(self, stage: str, fraction: float, layer: int = 0, layers: int = 0) -> None:
        """Say how far a stage is, 0 to 1."""
        self.report(Progress(stage, layer, layers, fraction))
