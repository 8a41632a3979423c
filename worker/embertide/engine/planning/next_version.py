"""What a run would do beside the current version, for plans: confirm it, go on from it, or neither.

How far changes reach is known only once the inputs are read.
"""

from __future__ import annotations

from embertide.engine.planning.base_version import change_since, planned_how, read_base
from embertide.engine.planning.graph import PlannedGraph, plan_graph
from embertide.engine.planning.inputs import Inputs, with_tables
from embertide.engine.planning.keeping import kept_sizes, unfit_to_keep
from embertide.engine.planning.matching import published, target_of_job
from embertide.engine.planning.room import room_notes
from embertide.errors import EmbertideError
from embertide.facts.telemetry.estimate import Estimate
from embertide.facts.telemetry.format import human_bytes
from embertide.io.storage.protocol import Storage
from embertide.io.versions.catalog import latest
from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Plan
from embertide.program.steps.program import Program
from embertide.spec.manifest import EmbeddingJob

CONFIRMS = "a run would confirm version {version}: nothing has changed since"
GOES_ON = (
    "a run would compute only rows that have changed since version {version}{unless}; the last full"
    " run was that of version {full}"
)
UNKNOWN = "whether a run would take over rows of the current version is not known: {why}"
ALL_ROWS = "a run would compute all rows: {why}"
KEEPS = (
    "the rows of its layers are kept below the output for the run that follows: {rows}, {digests}"
    " of digests, and the graph, which is read in place of edges that have not changed: {graph}"
    " (refresh.keep)"
)
KEEPS_NONE = "no rows are kept for the run that follows (refresh.keep): {why}"
_NOTE = "the delta has at most about {most}, where every row moves beyond the tolerance; {last}"


def next_version_notes(
    storage: Storage, job: EmbeddingJob, inputs: Inputs, program: Program, estimate: Estimate
) -> list[str]:
    """Notes on the next run: what it would do, what it keeps for the one that follows, and whether
    the disk has room."""
    arranged = with_tables(job, inputs.model_tables)
    grid, on_disk = estimate.grid, bool(estimate.spill and estimate.spill.graph)
    target = target_of_job(job, grid, panel=estimate.panel, spills_graph=on_disk)
    plan = make_plan(published(arranged, program), target)
    graph = plan_graph(arranged, inputs, plan.program, grid)
    unfit = unfit_to_keep(job, plan) or estimate.unkept
    return [
        *_does(storage, job, inputs, plan, unfit),
        *_kept(job, plan, graph, unfit),
        *room_notes(storage, job, inputs, estimate),
    ]


def _does(storage: Storage, job: EmbeddingJob, inputs: Inputs, plan: Plan, unfit: str) -> list[str]:
    """What it would do; [] before the first version."""
    try:
        version, change = change_since(storage, job, inputs)
    except EmbertideError as error:
        return [UNKNOWN.format(why=error)]
    if not version:
        return []
    if not change:
        return [CONFIRMS.format(version=version)]
    spec, how = job.spec.refresh, planned_how(job, plan.target.grid)
    base = read_base(storage, job, inputs, how)
    why = base.why or (unfit if base.version else change)
    if why:
        return [ALL_ROWS.format(why=why)]
    unless = "" if spec.mode == "incremental" else ", unless all are likely to take less time"
    return [GOES_ON.format(version=base.version, unless=unless, full=base.full)]


def _kept(job: EmbeddingJob, plan: Plan, graph: PlannedGraph, unfit: str) -> list[str]:
    if not job.spec.refresh.keep:
        return []
    if unfit:
        return [KEEPS_NONE.format(why=unfit)]
    sizes = kept_sizes(job, plan, graph)
    return [KEEPS.format(**{name: human_bytes(of) for name, of in sizes.items()})]


def delta_notes(storage: Storage, job: EmbeddingJob, output_bytes: int) -> list[str]:
    """A note on the size of the delta, beside that of the current version; [] without deltas."""
    if job.spec.output.delta is None:
        return []
    last = _last(storage, job.spec.published_uri)
    return [_NOTE.format(most=human_bytes(output_bytes), last=last)]


def _last(storage: Storage, output_uri: str) -> str:
    try:
        info = latest(storage, output_uri)
    except EmbertideError:
        return "there is none before the first version"
    types = [] if info.comparison is None else info.comparison.types
    sizes = [of_type.delta for of_type in types if of_type.delta is not None]
    if not sizes or any(size.why for size in sizes):
        return f"{info.version} has none"
    return f"that of {info.version} has {human_bytes(sum(size.size for size in sizes))}"
