"""From a prepared graph to the embeddings of a program: layer graphs, then the checked layers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embertide.context import RunContext
from embertide.engine.pipeline.prepare import Prepared
from embertide.engine.pipeline.typed_graph import TypedGraph
from embertide.engine.stages.csr import gather_partition, sample_layer
from embertide.engine.stages.infer import (
    EVERYTHING,
    Arrangement,
    Engine,
    Graphs,
    Request,
    arrange,
    infer,
)
from embertide.errors import SelfCheckFailed
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.self_check import OFF, Fault, SelfCheck
from embertide.graph.graph import LayerGraph
from embertide.kernels.spilled_csr import AnyCsr
from embertide.layouts import ROW_TYPES
from embertide.program.selfcheck.checker import Checker
from embertide.program.selfcheck.judge import Limits

FAILED = (
    "{rows} of {checked} rows that were computed a second time, in float64, differ from the run's"
    " own:\n{faults}\nNothing was published: the fault is not in the inputs, but in a worker's"
    " memory, in what workers sent each other, or in a kernel. Run the job again. If it fails on"
    " the same machine only, replace the machine; if it fails at the same layer everywhere, report"
    " it with this message. spec.inference.checkedRows: 0 publishes without this check"
)
OVERFLOWED = (
    "{rows} of {checked} rows that were computed a second time, in float64, differ from the run's"
    " own, and are made of values so large that float32 overflows (3.4e38) with them, their"
    " squares or their sums:\n{faults}\nNothing was published: the embeddings are finite numbers,"
    " but wrong. Check the model's weights, the features and the edge weights"
)


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


@dataclass
class SelfChecking:
    """Makes the checker of a run's layers; 0 rows make none.

    Attributes:
        version: that is computed; other rows are drawn for the next one.
    """

    prepared: Prepared
    version: str
    _checker: Checker | None = None

    def __call__(self, layers: Arrangement) -> Checker | None:
        """Called before the layer graphs are made."""
        inference = self.prepared.ctx.job.spec.inference
        if inference.checked_rows == 0:
            return None
        digest = hashlib.sha256(self.version.encode()).digest()
        self._checker = Checker(
            exchange=layers.exchange,
            plan=layers.plan,
            ranges=layers.ranges,
            wanted=inference.checked_rows,
            seed=int.from_bytes(digest[:4], "little"),
            limits=Limits(ROW_TYPES[inference.rows]),
            name_of=self._name_of,
        )
        return self._checker

    def finish(self, embeddings: Mapping[str, Tensor]) -> SelfCheck:
        """The result, the same on every rank. Collective: every rank must call.

        Where float32 overflows and embeddings are not finite, it is left to publishing to refuse
        them.

        Args:
            embeddings: key of a result -> [N/(P*M), D'] float32.

        Raises:
            SelfCheckFailed: rows differ by more than they may.
        """
        if self._checker is None:
            return SelfCheck(state=OFF)
        check = self._checker.finish()
        beyond = sum(rows.beyond for rows in check.checked)
        overflowed = sum(rows.overflowed for rows in check.checked)
        if beyond:
            raise _failed(FAILED, beyond, check, check.faults)
        if overflowed and self._all_finite(embeddings):
            raise _failed(OVERFLOWED, overflowed, check, check.overflows)
        return check

    def _all_finite(self, embeddings: Mapping[str, Tensor]) -> bool:
        """Whether all ranks' embeddings are. Collective: every rank must call."""
        ours = all(bool(values.isfinite().all()) for values in embeddings.values())
        return all(self.prepared.ctx.exchange.all_objects(ours))

    def _name_of(self, node_type: str, node: int) -> str:
        """The id of a node of ours in the files."""
        located = self.prepared.graph.located[self.prepared.names[node_type]]
        first, _ = located.ranges.worker(self.prepared.ctx.grid.rank)
        name = located.names[node - first]
        return repr(name.as_py()) if hasattr(name, "as_py") else str(name)


def _failed(message: str, rows: int, check: SelfCheck, faults: Sequence[Fault]) -> SelfCheckFailed:
    listed = "\n".join(f"  {fault}" for fault in faults)
    return SelfCheckFailed(message.format(rows=rows, checked=check.rows, faults=listed))
