"""From a prepared graph to the embeddings of a program: layer graphs, then the layers."""

from __future__ import annotations

from collections.abc import Callable

import torch

from embertide.context import RunContext
from embertide.engine.pipeline.prepare import Prepared
from embertide.engine.pipeline.typed_graph import TypedGraph
from embertide.engine.stages.csr import gather_partition
from embertide.engine.stages.infer import (
    EVERYTHING,
    Arrangement,
    Engine,
    Graphs,
    Request,
    arrange,
    infer,
)
from embertide.engine.stages.sample import sample_layer
from embertide.facts.telemetry.clock import Clock
from embertide.graph.graph import LayerGraph
from embertide.kernels.spilled_csr import AnyCsr
from embertide.program.selfcheck.checker import Checker


def compute(
    prepared: Prepared,
    clock: Clock,
    request: Request = EVERYTHING,
    *,
    checker: Callable[[Arrangement], Checker | None] = lambda _layers: None,
    make_room: Callable[[], None] = lambda: None,
) -> dict[str, torch.Tensor]:
    """Key of a result -> [N/(P*M), D'] float32, the embeddings of our sub-range; only the chosen
    ones of its rows, in their order, where some are chosen.

    Uses the prepared graph and features up. Collective: every rank must call.

    Args:
        checker: makes what computes rows of the layers again, if anything does.
        make_room: gives back idle pages that the layers' tensors would not fill.
    """
    ctx, graph, loaded = prepared.ctx, prepared.graph, prepared.loaded
    with clock.stage("infer"):
        ranges, locations = graph.of_types(prepared.names)
        layers = arrange(ctx, prepared.plan, ranges)
        checking = checker(layers)
        graphs = layer_graphs(ctx, layers, graph, clock, checking)
        # Layer graphs have what they need of them.
        graph.sub_ranges.clear()
        make_room()
        engine = Engine.of(ctx, layers, graphs, loaded, locations, clock, checking)
        embeddings = infer(engine, request)
        loaded.clear()
    return embeddings


def layer_graphs(
    ctx: RunContext,
    layers: Arrangement,
    graph: TypedGraph,
    clock: Clock,
    checker: Checker | None = None,
) -> Graphs:
    """Layer and relation -> graph: one graph for all layers, or one sample each, made when needed.

    Collective: every rank must call, and must call the result with the same layers and relations.
    """
    exchange, program = layers.exchange, layers.plan.program
    named = graph.of_relations(program)
    group_bytes = ctx.job.spec.inference.group_bytes
    widest = max(program.widths.values())
    tile = -(-widest // exchange.grid.feature)

    def build(name: str, rows: AnyCsr, layer: int | None = None) -> LayerGraph:
        relation = named[name]
        if checker:
            checker.take_edges(layer, name, rows)
        targets = layers.spread(graph.located[relation.destination].ranges)
        return LayerGraph(
            exchange=exchange,
            relation=name,
            targets=targets,
            origins=layers.spread(graph.located[relation.source].ranges),
            features=rows.features,
            csr=gather_partition(exchange, targets, rows, name),
            group_rows=max(1, group_bytes // (4 * tile)),
            pair_rows=max(1, group_bytes // (4 * widest)),
            needs=program.edge_needs(name),
        )

    sub_ranges = {name: graph.sub_ranges[relation] for name, relation in named.items()}
    for name, rows in sub_ranges.items():
        if not program.edge_needs(name).features:
            sub_ranges[name] = rows.without_features()
    fanout, seed = ctx.job.spec.inference.fanout, ctx.job.spec.inference.seed
    if fanout == "full":
        full = {name: build(name, sub_range) for name, sub_range in sub_ranges.items()}
        return lambda _layer, name: full[name]
    current: dict[tuple[int, str], LayerGraph] = {}
    # Blocks of rows may read degrees of two layers in turn, of which samples on disk both stay.
    layers_kept = 2 if ctx.spills_graph else 1

    def sampled(layer: int, name: str) -> LayerGraph:
        if (layer, name) not in current:
            for past in [key for key in current if key[0] <= layer - layers_kept]:
                del current[past]
            with clock.stage("sample"):
                keys = graph.located[named[name].destination].keys
                sample = sample_layer(sub_ranges[name], keys, fanout[layer], seed, layer)
                current[layer, name] = build(name, sample, layer)
        return current[layer, name]

    return sampled
