"""The work order: what every worker of a run is given, the same for each."""

from __future__ import annotations

from dataclasses import dataclass, field

from embertide.engine.planning.inputs import Inputs
from embertide.facts.telemetry.report import PlannedTraffic
from embertide.io.versions.pointer import Follows
from embertide.plain import Plain


@dataclass(frozen=True)
class WorkOrder(Plain):
    """What to read, which version to write, and how much memory that was planned to take.

    Attributes:
        planned_bytes: of the fullest worker, beyond its imports.
        planned_memory: the same by stage.
        planned_traffic: what one worker is expected to send.
        began: when the command or the attempt began, in seconds since the epoch; 0: unknown.
        model_digest: of the model's files that this was planned with; "": unknown.
        keep: the layers, from 1, that are kept for a next attempt.
        panel: columns of a tensor that are in memory at a time; 0: all tensors are in memory.
        parts_bytes: that the largest parts of tensors take in memory at a time, then.
        spills_graph: edges and the graph are on disk, too.
        follows: what ``LATEST`` was before the inputs were listed.
        no_room: why nothing is kept, and no kept rows are taken over: disk or memory would not do;
            "" where they do.
        budget: how the plan compares with the memory that a worker may take; "" without a limit.
    """

    inputs: Inputs
    version: str
    planned_bytes: int
    planned_memory: dict[str, int] = field(default_factory=dict)
    planned_traffic: list[PlannedTraffic] = field(default_factory=list)
    began: float = 0.0
    model_digest: str = ""
    keep: list[int] = field(default_factory=list)
    panel: int = 0
    parts_bytes: int = 0
    spills_graph: bool = False
    budget: str = ""
    follows: Follows = field(default_factory=Follows)
    no_room: str = ""
