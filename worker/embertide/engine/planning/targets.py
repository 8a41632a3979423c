"""What a run for some nodes alone is likely to take, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping

from embertide.engine.planning.graph import PlannedGraph
from embertide.engine.planning.inputs import Inputs, rows_of
from embertide.engine.planning.sizes import TEXT_FORMATS
from embertide.footprint import FLOAT_BYTES, ID_BYTES
from embertide.program.steps import Program
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.targets import Targets

_TEXT_ROW_BYTES = 8
"""A guess of the bytes of an id in a line of text."""
NOTE = (
    "only the rows of {about}{rows:,} of {nodes:,} nodes are published, below {uri}"
    " (spec.inference.targets)"
)
SHARE = (
    "{note}; their layers are likely to go over {share:.1%} of the edges of all, where"
    " in-neighbours have about as many in-edges as other nodes"
)


def planned_targets(job: EmbeddingJob, inputs: Inputs) -> int | None:
    """How many nodes are wanted, at most; of text a guess, by its size; None: all are."""
    targets = job.spec.inference.targets
    if targets is None:
        return None
    if targets.table is None:
        return len(set(targets.ids or []))
    rows = rows_of(inputs.targets)
    return -(-rows // _TEXT_ROW_BYTES) if targets.table.format in TEXT_FORMATS else rows


def target_notes(
    job: EmbeddingJob, inputs: Inputs, program: Program, graph: PlannedGraph
) -> list[str]:
    """How many rows are wanted, and in a graph of one type the share of edges that they need."""
    wanted, targets = planned_targets(job, inputs), job.spec.inference.targets
    if wanted is None or targets is None:
        return []
    nodes = graph.size.nodes[next(iter(program.result_widths))]
    note = NOTE.format(
        about=_about(targets),
        rows=min(wanted, nodes),
        nodes=nodes,
        uri=job.spec.published_uri,
    )
    if len(graph.size.nodes) > 1 or len(program.relations) != 1:
        return [note]
    share = _share(min(wanted, nodes), nodes, graph.edges / max(1, nodes), program.layers)
    return [SHARE.format(note=note, share=share)]


def _about(targets: Targets) -> str:
    """How well the number of rows is known: an id may be there twice; of text bytes are counted."""
    if targets.table is None:
        return ""
    return "about " if targets.table.format in TEXT_FORMATS else "at most "


def _share(wanted: float, nodes: int, degree: float, layers: int) -> float:
    """The likely share of the edges of all layers."""
    total = 0.0
    for _ in range(layers):
        total += wanted / nodes
        # As in the run: where in-neighbours would be about all nodes, all are taken.
        wanted = nodes if wanted * (1 + degree) >= nodes else wanted * (1 + degree)
    return total / max(1, layers)


def target_memory(
    job: EmbeddingJob, inputs: Inputs, program: Program, graph: PlannedGraph, *, spills: bool
) -> Mapping[str, int]:
    """Stage -> bytes that a worker takes beyond those of a run of all nodes, at most.

    Args:
        spills: tensors are on disk, and rows are computed alone where they take no more than the
            parts of tensors; where all are computed, those that are wanted are copied to memory.
    """
    wanted = planned_targets(job, inputs)
    if wanted is None:
        return {}
    size = graph.size
    nodes, grid = sum(size.nodes.values()), size.grid
    sets = nodes * (len(program.steps) + ID_BYTES)
    if spills:
        # One worker may have all of them, as far as it has so many rows.
        most = min(wanted, -(-max(size.nodes.values()) // grid.workers))
        width = sum(program.widths[name] for name in program.results.values())
        copied = most * width * FLOAT_BYTES
        return {"infer": sets + copied, "publish": nodes + copied}
    edges = graph.edges * (ID_BYTES + FLOAT_BYTES) // grid.graph
    features = nodes * inputs.width * FLOAT_BYTES // grid.workers
    return {"infer": sets + edges + features, "publish": nodes}
