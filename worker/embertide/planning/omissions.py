"""What a run will do without, or may: as far as it is known before it reads its inputs."""

from __future__ import annotations

from embertide.planning.matching import narrow
from embertide.spec.manifest import EmbeddingJob
from embertide.steps import Program


def allowed_omissions(job: EmbeddingJob, program: Program) -> list[str]:
    """Of the inputs that a run of the program reads, what it may leave out; a line each."""
    return [
        f"edges of {edge.relation} whose end is not among the nodes are dropped, and the run fails"
        f" where they are more ({edge.unknown_nodes.text})"
        for edge in narrow(job, program).spec.input.edges
        if edge.unknown_nodes is not None and edge.unknown_nodes.action == "drop"
    ]
