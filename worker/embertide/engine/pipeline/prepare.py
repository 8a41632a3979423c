"""From inputs and a model to a graph that programs can be computed on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch

from embertide.context import RunContext
from embertide.engine.pipeline.kept_graph import KeptGraph, Moved
from embertide.engine.pipeline.typed_graph import (
    TypedGraph,
    build_types,
    drop_unread,
    ingest_types,
    load_types,
    omissions_of,
    pairs_of,
)
from embertide.engine.planning.graph import plan_graph
from embertide.engine.planning.growth import Growth, growths
from embertide.engine.planning.inputs import Inputs, with_tables
from embertide.engine.planning.matching import (
    check_model,
    match_relations,
    narrow,
    published,
    target_of_job,
    weight_warnings,
)
from embertide.engine.planning.scoring import scoring
from embertide.engine.stages.features import LoadedNodes, loaded_features, read_rows
from embertide.engine.stages.infer import Chosen
from embertide.engine.stages.limits import check_read, check_unchanged
from embertide.engine.stages.loops import LoopCount
from embertide.engine.stages.report import run_facts, type_counts
from embertide.engine.stages.scores import Pairs
from embertide.engine.stages.targets import read_chosen
from embertide.engine.stages.verify import Expected, check_width, read_expected
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.memory import release_memory
from embertide.facts.telemetry.report import RelationCount, RunFacts
from embertide.graph.shuffle import Edges
from embertide.io.readers.ids import Mask
from embertide.io.readers.splits import Split
from embertide.layouts import Loaded, ReadRows
from embertide.models.read import Model
from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Plan, Target
from embertide.program.steps import Program
from embertide.program.steps.decoder import Decoder
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.relations import Relation
from embertide.spec.result_names import UNNAMED, name_of, node_type_of

ReadModel = Callable[[RunContext], Model]
"""Reads the job's model. Collective: every rank must call."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What the layers and the publishing of a run need. Computing uses the graph up.

    Attributes:
        job: as the manifest has it.
        ctx: with the job as it is run: the model's own tables are features.
        plan: how the model's program is computed.
        facts: of the model and the settings, for reports.
        reference_tolerance: of the model, as a share of a reference's largest value.
        names: the program's name of a node type -> the manifest's.
        graph: the CSR of our sub-range of each relation.
        loaded: the program's name of a node type -> the feature rows that we read.
        read: the program's name of a node type -> the feature rows that we read of each split.
        moved: relation -> the edges that have moved since its graph was kept, where only these were
            read.
        later: the program's name of a node type -> the nodes whose features are read later.
        expected: key of a result -> what it is compared with, if anything.
        warnings: sentences for the run's user.
        chosen: node type, by the program's name -> [N] bool, the nodes whose rows alone are
            wanted; None: all are.
        pairs, decoder: what gets scores, and by what; None where nothing does.
    """

    job: EmbeddingJob
    ctx: RunContext
    inputs: Inputs
    plan: Plan
    facts: RunFacts
    reference_tolerance: float
    names: dict[str, str]
    graph: TypedGraph
    loaded: dict[str, Loaded]
    expected: dict[str, Expected]
    warnings: list[str] = field(default_factory=list)
    pairs: Pairs | None = None
    decoder: Decoder | None = None
    chosen: Chosen | None = None
    later: Mapping[str, LoadedNodes] = field(default_factory=dict)
    read: Mapping[str, Sequence[ReadRows]] = field(default_factory=dict)
    moved: Mapping[Relation, Moved] = field(default_factory=dict)

    def copy(self) -> Prepared:
        """The same, which stays as it is when the copy is used up.

        The layers change features in place that are in order from the start, so these are copied.
        """
        graph = replace(self.graph, sub_ranges=dict(self.graph.sub_ranges))
        loaded = {
            name: replace(own, data=own.data.clone() if own.placed else own.data)
            for name, own in self.loaded.items()
        }
        return replace(self, graph=graph, loaded=loaded)


EdgesOf = Callable[[RunContext, Program, Mapping[str, LoadedNodes]], Mapping[str, torch.Tensor]]
"""Node type -> [N] bool, the nodes whose edges are needed; by the program's names of the types.

Collective: every rank must call.
"""
ReadReferences = Callable[
    [RunContext, Inputs, Program, Mapping[str, LoadedNodes]], dict[str, Expected]
]
"""Reads what results are compared with, by key; nodes are by the program's names of their types.

Collective: every rank must call.
"""


def to_publish(ctx: RunContext, program: Program) -> Program:
    """The part of a model's program that the job publishes."""
    return published(ctx.job, program)


def target_of(ctx: RunContext) -> Target:
    """Where a run's programs are computed; the same on every rank."""
    in_place = ctx.exchange.channel("world", "features").in_place
    return target_of_job(
        ctx.job,
        ctx.grid.shape,
        in_place=in_place,
        panel=ctx.panel,
        spills_graph=ctx.spills_graph,
    )


def model_references(
    ctx: RunContext, inputs: Inputs, program: Program, nodes: Mapping[str, LoadedNodes]
) -> dict[str, Expected]:
    """The model's own references; none with a fanout, since a sample's embeddings differ.

    Collective: every rank must call.
    """
    if ctx.job.spec.inference.fanout != "full":
        return {}
    expected = {}
    for key, result in program.results.items():
        of_type = nodes[node_type_of(key)]
        references = inputs.by_nodes[of_type.node.name].references
        if reference := reference_of(references, name_of(key)):
            expected[key] = read_expected(ctx, reference, of_type.node, of_type.ids)
            check_width(expected[key], program.widths[result])
    return expected


def reference_of(references: Mapping[str, list[Split]], name: str) -> list[Split]:
    """The reference of a result; one without a name in its file is that of ``embedding``."""
    plain = references.get("", []) if name == UNNAMED else []
    return references.get(name) or plain


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is read.

    Attributes:
        model: reads the job's model.
        choose: makes of the model's program the one that is computed.
        references: reads what embeddings are compared with.
        complete: refuse inputs that are too small, or that changed while they were read.
        targets: read which nodes the job wants, where it names some.
        later: read no features whose places are known, see :attr:`Prepared.later`.
        edges_of: the nodes into or out of which edges are kept in memory; None: all edges are.
        kept: finds graphs that an earlier run has kept, whose edges are not read.
    """

    model: ReadModel
    choose: Callable[[RunContext, Program], Program] = to_publish
    references: ReadReferences = model_references
    complete: bool = True
    targets: bool = False
    later: bool = False
    edges_of: EdgesOf | None = None
    kept: KeptGraph | None = None


def prepare(ctx: RunContext, inputs: Inputs, clock: Clock, what: Reading) -> Prepared:
    """Read the model and all inputs, and build the graph. Collective: every rank must call.

    Raises:
        EmbertideError: on the rank that found a problem, or on all.
    """
    job, kept = ctx.job, what.kept
    ctx = replace(ctx, job=with_tables(job, inputs.model_tables))
    with clock.stage("features"):
        model = what.model(ctx)
        plan, facts = _plan(ctx, model, what.choose)
        program, tolerance = plan.program, model.reference_tolerance
        decoder = scoring(ctx.job, program)
        reading = replace(ctx, job=narrow(ctx.job, program))
        nodes = load_types(reading, inputs, later=what.later)
        counts = {name: of_type.ids.count for name, of_type in nodes.items()}
        ctx.graph_facts.nodes = sum(counts.values())
        names = check_model(ctx.job, inputs, plan.sliced, ctx.grid.shape, counts)
        by_program = {name: nodes[of_type] for name, of_type in names.items()}
        expected = what.references(ctx, inputs, program, by_program)
        chosen = _chosen(ctx, inputs, program, by_program) if what.targets else None
        only = None if what.edges_of is None else what.edges_of(ctx, program, by_program)
    with clock.stage("ingest"):
        read = match_relations(ctx.job, program)
        stand_ins, to_read = dict[Relation, Edges](), reading.job.spec.input.edges
        if kept is not None:
            stand_ins = kept.find(ctx, inputs, nodes, to_read, set(read.values()))
        masks = _masks(nodes, names, only)
        edges = ingest_types(reading, inputs, nodes, masks, stand_ins)
        ctx.graph_facts.omissions = omissions_of(reading.job, inputs, nodes, edges)
        warnings = weight_warnings(ctx.job, program)
        if what.complete:
            ctx.graph_facts.read = check_read(ctx, inputs, edges).to_json()
            warnings += check_unchanged(ctx, inputs)
        pairs = pairs_of(reading, inputs, nodes)
        read_back = None
        if kept is not None:
            kept.keep_read(ctx, inputs, to_read, edges)
            kept.note(reading.job, edges)
            read_back = partial(kept.read_back, reading, inputs, nodes, masks, warnings)
        drop_unread(edges, read)
        if only is None:
            release_memory()
    with clock.stage("csr"):
        loops = LoopCount({read[name] for name in program.one_loop_relations})
        graph = build_types(
            reading, nodes, edges, lambda: grown(ctx, inputs, plan), read_back, loops
        )
        if kept is not None:
            kept.note_loops(loops, ctx.grid.rank)
        if loops.steps_merge or any(e.self_loops == "addRemaining" for e in to_read):
            named = {name: (of.ranges, of.names) for name, of in graph.located.items()}
            ctx.graph_facts.omissions = replace(
                ctx.graph_facts.omissions, merged_loops=loops.gather(ctx.exchange, named)
            )
        _note(ctx, inputs, program, graph, names, counts)
        loaded = {name: loaded_features(ctx, by_program[name]) for name in program.inputs}
        rows_read = {
            name: read_rows(ctx, of, inputs.by_nodes[of.node.name])
            for name in loaded
            if not what.later and (of := by_program[name])
        }
        left = {name: of for name in loaded if (of := by_program[name]).places is not None}
    del edges, nodes, by_program
    if only is None:
        # Of some nodes there is little to release, and to look for it takes longer than to read it.
        release_memory()
    return Prepared(
        job=job,
        ctx=ctx,
        inputs=inputs,
        plan=plan,
        facts=facts,
        reference_tolerance=tolerance,
        names=names,
        graph=graph,
        loaded=loaded,
        expected=expected,
        warnings=warnings,
        pairs=pairs,
        decoder=decoder,
        chosen=chosen,
        later=left,
        read=rows_read,
        moved={} if kept is None else dict(kept.moved),
    )


def _chosen(
    ctx: RunContext, inputs: Inputs, program: Program, nodes: Mapping[str, LoadedNodes]
) -> Chosen | None:
    """The nodes whose rows alone are wanted. Collective: every rank must call."""
    of_type = node_type_of(next(iter(program.results)))
    rows = read_chosen(ctx, inputs, nodes[of_type])
    return None if rows is None else {of_type: rows}


def _masks(
    nodes: Mapping[str, LoadedNodes],
    names: Mapping[str, str],
    only: Mapping[str, torch.Tensor] | None,
) -> dict[str, Mask] | None:
    """The nodes whose edges are needed, by the manifest's names; none of types without rows."""
    if only is None:
        return None
    masks = {name: np.zeros(of_type.ids.count, bool) for name, of_type in nodes.items()}
    return masks | {names[of]: rows.numpy() for of, rows in only.items()}


def _plan(
    ctx: RunContext, model: Model, choose: Callable[[RunContext, Program], Program]
) -> tuple[Plan, RunFacts]:
    """How the program is computed, and facts of the model."""
    whole = model.program()
    facts = run_facts(ctx, model.library, model.layer_names, whole)
    plan = make_plan(choose(ctx, whole), target_of(ctx))
    return plan, facts


def _note(
    ctx: RunContext,
    inputs: Inputs,
    program: Program,
    graph: TypedGraph,
    names: dict[str, str],
    counts: dict[str, int],
) -> None:
    """Note the sizes of the graph and of our share. Collective: every rank must call."""
    facts, edges = ctx.graph_facts, graph.count_edges(ctx.exchange)
    facts.own_nodes = sum(len(of_type.names) for of_type in graph.located.values())
    facts.own_edges = sum(csr.nnz for csr in graph.sub_ranges.values())
    facts.edges = sum(edges.values())
    facts.types = type_counts(inputs, counts, program, names)
    facts.relations = [RelationCount(str(relation), count) for relation, count in edges.items()]


def grown(ctx: RunContext, inputs: Inputs, plan: Plan) -> dict[str, list[Growth]]:
    """Node type -> what a worker's rows and edges may take, the same on every rank."""
    spec, grid = ctx.job.spec, ctx.grid.shape
    planned = plan_graph(ctx.job, inputs, plan.program, grid, in_place=plan.target.in_place)
    fanout = None if spec.inference.fanout == "full" else spec.inference.fanout
    return growths(planned, plan, fanout, gpu=spec.workers.device == "cuda")
