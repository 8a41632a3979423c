"""What ``embertide check`` computes on each rank: a run's stages without publishing.

Inputs and graph are prepared once; then any program that takes the same features and reads the same
relations can be computed and compared, which is how the first layer that differs is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from embertide.context import RunContext
from embertide.grid import RowRanges
from embertide.layouts import Loaded
from embertide.pipeline import layer_graphs
from embertide.planning.inputs import Inputs, with_tables
from embertide.planning.matching import check_model, narrow
from embertide.readers.reference import ReferenceColumns
from embertide.stages.features import LoadedNodes, loaded_features
from embertide.stages.infer import arrange, infer
from embertide.stages.verify import (
    Agreement,
    Expected,
    compare,
    read_expected,
)
from embertide.steps import Program
from embertide.telemetry.clock import Clock
from embertide.telemetry.memory import MemoryWatch
from embertide.telemetry.omissions import Omissions
from embertide.typed_graph import build_types, ingest_types, load_types, omissions_of


@dataclass(frozen=True, kw_only=True)
class Check:
    """What is compared, and how programs are computed on one graph, one after another.

    Attributes:
        node_type: whose embeddings are compared, by the model's name.
        embed: a program's embeddings [N/(P*M), D'] of our sub-range.
        omissions: what was left out of the graph, as a run would.
    """

    node_type: str
    ctx: RunContext
    ranges: RowRanges
    expected: Expected
    embed: Callable[[RunContext, Program], torch.Tensor]
    omissions: Omissions

    def compare(self, program: Program, tolerance: float) -> Agreement:
        """Compare a program's embeddings. Collective: every rank must call."""
        embeddings = self.embed(self.ctx, program)
        return compare(self.ctx, self.expected, self.ranges, embeddings, tolerance)

    def rows(self, program: Program) -> torch.Tensor:
        """[n, D'] a program's embeddings of the reference's nodes, on a grid of one worker."""
        assert self.ctx.grid.world == 1
        # Of many programs, each one's own progress says nothing.
        quiet = replace(self.ctx, report=lambda _event: None)
        return self.embed(quiet, program)[torch.from_numpy(self.expected.dense)]


def prepare_check(
    ctx: RunContext,
    inputs: Inputs,
    program: Program,
    columns: ReferenceColumns | None,
    node_type: str = "",
) -> Check:
    """Read what a run reads, and keep it for several programs; publishes nothing.

    Collective: every rank must call.

    Args:
        inputs: with a reference of the node type.
        program: the model's; others must take the same features and read the same relations.
        node_type: whose embeddings are compared, by the model's name.

    Raises:
        EmbertideError: on the rank that found a problem, or on all.
    """
    clock = Clock(MemoryWatch(), ctx.report)
    ctx = replace(ctx, job=with_tables(ctx.job, inputs.model_tables))
    reading = replace(ctx, job=narrow(ctx.job, program))
    nodes = load_types(reading, inputs)
    counts = {name: of_type.ids.count for name, of_type in nodes.items()}
    names = check_model(ctx.job, inputs, program, ctx.grid.shape, counts)
    compared = nodes[names[node_type]]
    reference = inputs.by_nodes[compared.node.name].reference
    expected = read_expected(ctx, reference, compared.node, compared.ids, columns)
    edges = ingest_types(reading, inputs, nodes)
    omissions = omissions_of(reading.job, inputs, edges)
    graph = build_types(reading, nodes, edges)
    ranges, locations = graph.of_types(names)

    def embed(ctx: RunContext, program: Program) -> torch.Tensor:
        layers = arrange(ctx, program, ranges)
        graphs = layer_graphs(ctx, layers, graph, clock)
        loaded = {name: _fresh(ctx, nodes[names[name]]) for name in program.inputs}
        return infer(ctx, layers, graphs, loaded, locations, clock)[node_type]

    return Check(
        node_type=node_type,
        ctx=ctx,
        ranges=ranges[node_type],
        expected=expected,
        embed=embed,
        omissions=omissions,
    )


def _fresh(ctx: RunContext, nodes: LoadedNodes) -> Loaded:
    """A type's features; layers change placed ones in place, and another program reads them."""
    loaded = loaded_features(ctx, nodes)
    if loaded.placed:
        loaded.data = loaded.data.clone()
    return loaded
