"""What a run will do without, or may: as far as it is known before it reads its inputs."""

from __future__ import annotations

from embertide.engine.planning.inputs import Inputs
from embertide.engine.planning.matching import match_relations, narrow
from embertide.facts.telemetry.omissions import ONE_LOOP_COUNTS, FilledNodes, Omissions
from embertide.program.steps import Program
from embertide.spec.manifest import EmbeddingJob


def planned_omissions(job: EmbeddingJob, inputs: Inputs) -> Omissions:
    """What of a run is missing, and allowed to be: empty relations, days, rows of tables.

    Args:
        job: with those inputs alone that are read.
    """
    inputs_of_job = job.spec.input
    empty = {
        str(edge.relation): edge.location
        for edge in inputs_of_job.edges
        if str(edge.relation) in inputs.absent
    }
    read = {item.location for _, item in inputs_of_job.object_inputs}
    days = {where: days for where, days in inputs.missing_days.items() if where in read}
    return Omissions([], empty, days, _filled(job, inputs))


def _filled(job: EmbeddingJob, inputs: Inputs) -> list[FilledNodes]:
    """The node types with nodes that the model's table has no rows of."""
    return [
        FilledNodes(node.name, of_type.new_rows, of_type.feature_rows, node.missing)
        for node in job.spec.input.nodes
        if (of_type := inputs.by_nodes[node.name]).new_rows
    ]


def plan_notes(job: EmbeddingJob, program: Program, inputs: Inputs) -> list[str]:
    """What a run will leave out, and what it may; a line each."""
    job, read = narrow(job, program), match_relations(job, program)
    by_steps = {read[name] for name in program.one_loop_relations}
    may = [
        f"edges of {edge.relation} whose end is not among the nodes are dropped, and the run fails"
        f" where they are more ({edge.unknown_nodes.text})"
        for edge in job.spec.input.edges
        if edge.unknown_nodes is not None and edge.unknown_nodes.action == "drop"
    ]
    may += [
        f"where a node has several self-loops of different weight in {edge.relation},"
        f" {ONE_LOOP_COUNTS} (the run counts them)"
        for edge in job.spec.input.edges
        if edge.duplicates == "keep"
        and not edge.removes_loops
        and (
            (edge.columns.weight is not None and by_steps.intersection(edge.relations))
            or (edge.self_loops == "addRemaining" and (edge.columns.weight or edge.features))
        )
    ]
    return [*planned_omissions(job, inputs).sentences, *may]
