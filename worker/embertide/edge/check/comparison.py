"""Programs computed on the graph of a job and compared with a reference, one after another.

Inputs and graph are prepared once, as a run does; then any program that takes the same features and
reads the same relations can be computed, which is how the first layer that differs is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from embertide.context import RunContext
from embertide.engine.pipeline.compute import compute
from embertide.engine.pipeline.prepare import Prepared, Reading, prepare
from embertide.engine.planning.inputs import Inputs
from embertide.engine.stages.features import LoadedNodes
from embertide.engine.stages.verify import Agreement, Expected, compare, read_expected
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.memory import MemoryWatch
from embertide.facts.telemetry.omissions import Omissions
from embertide.io.readers.reference import ReferenceColumns
from embertide.models.read import Model
from embertide.program.plans.passes import make_plan
from embertide.program.steps import Program
from embertide.spec.result_names import node_type_of


@dataclass(frozen=True, kw_only=True)
class Check:
    """A prepared graph, and what one of the model's results is compared with.

    Attributes:
        key: of the result, by the model's name of its node type.
    """

    prepared: Prepared
    key: str

    @property
    def expected(self) -> Expected:
        """The reference."""
        return self.prepared.expected[self.key]

    @property
    def omissions(self) -> Omissions:
        """What was left out of the graph, as a run would."""
        return self.prepared.ctx.graph_facts.omissions

    def compare(self, program: Program, tolerance: float) -> Agreement:
        """Compare a program's embeddings. Collective: every rank must call."""
        ctx, graph = self.prepared.ctx, self.prepared.graph
        ranges = graph.located[self.prepared.names[node_type_of(self.key)]].ranges
        return compare(ctx, self.expected, ranges, self._embed(ctx, program), tolerance)

    def rows(self, program: Program) -> torch.Tensor:
        """[n, D'] a program's embeddings of the reference's nodes, on a grid of one worker."""
        ctx = self.prepared.ctx
        assert ctx.grid.world == 1
        # The progress of each of many programs would only confuse.
        quiet = replace(ctx, report=lambda _event: None)
        return self._embed(quiet, program)[torch.from_numpy(self.expected.dense)]

    def _embed(self, ctx: RunContext, program: Program) -> torch.Tensor:
        """[N/(P*M), D'] of our sub-range. Collective: every rank must call."""
        clock = Clock(MemoryWatch(), ctx.report)
        plan = make_plan(program, self.prepared.plan.target)
        return compute(replace(self.prepared.copy(), ctx=ctx, plan=plan), clock)[self.key]


def prepare_check(
    ctx: RunContext,
    inputs: Inputs,
    model: Model,
    columns: ReferenceColumns | None,
    key: str = "",
) -> Check:
    """Read what a run reads, and keep it for several programs; publishes nothing.

    Collective: every rank must call.

    Args:
        inputs: with a reference of the result.
        key: of the result, by the model's name of its node type.

    Raises:
        EmbertideError: on the rank that found a problem, or on all.
    """

    def reference(
        ctx: RunContext, inputs: Inputs, _program: Program, nodes: Mapping[str, LoadedNodes]
    ) -> dict[str, Expected]:
        of_type = nodes[node_type_of(key)]
        splits = inputs.by_nodes[of_type.node.name].reference
        return {key: read_expected(ctx, splits, of_type.node, of_type.ids, columns)}

    reading = Reading(
        model=lambda _ctx: model,
        choose=lambda _ctx, program: program,
        references=reference,
        complete=False,
    )
    prepared = prepare(ctx, inputs, Clock(MemoryWatch(), ctx.report), reading)
    return Check(prepared=prepared, key=key)
