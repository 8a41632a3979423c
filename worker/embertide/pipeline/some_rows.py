"""Layer graphs with the edges of some rows alone: what some nodes' embeddings need.

The rest of a run stays as it is: rows without edges are computed too, and mean nothing. Degrees are
those of the whole graph.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from embertide.kernels.csr import Csr, only_rows, sources_of
from embertide.kernels.spilled_csr import in_memory
from embertide.pipeline.prepare import Prepared
from embertide.plans.wanted import GraphRows, Rows, wanted_rows
from embertide.primitives.graph import LayerGraph
from embertide.stages.infer import Graphs


def rows_for(prepared: Prepared, results: Mapping[str, Rows]) -> GraphRows:
    """Layer and relation -> the rows whose edges some rows of the results need.

    Of a grid of one worker. Where the in-neighbours of some rows would be about all nodes, all are
    taken, and none is counted any more (DGI, section 4.1).

    Args:
        results: tensor -> [N] bool.
    """
    graph, program = prepared.graph, prepared.plan.program
    assert prepared.ctx.grid.world == 1
    named = graph.of_relations(program)
    ranges, _ = graph.of_types(prepared.names)
    nodes = {name: of_type.nodes for name, of_type in ranges.items()}

    def neighbours(relation: str, rows: Rows) -> Rows:
        csr = in_memory(graph.sub_ranges[named[relation]])
        count = graph.located[named[relation].source].ranges.nodes
        if int(rows.sum()) * csr.nnz >= count * csr.rows:
            return torch.ones(count, dtype=torch.bool)
        return sources_of(csr, rows, count)

    return wanted_rows(prepared.plan, results, nodes, neighbours)


def only_wanted(graphs: Graphs, wanted: GraphRows) -> Graphs:
    """Layer and relation -> its graph with the edges of the rows that are wanted."""
    whole: dict[str, tuple[LayerGraph, Csr]] = {}
    current: dict[tuple[int, str], LayerGraph] = {}

    def some(layer: int, name: str) -> LayerGraph:
        graph = graphs(layer, name)
        if name not in whole or whole[name][0] is not graph:
            # Before anything is made of it, which may drop its columns.
            whole[name] = graph, in_memory(graph.csr)
        rows = wanted.get((layer, name))
        if rows is None or bool(rows.all()):
            return graph
        if (layer, name) not in current:
            for past in [key for key in current if key[0] < layer]:
                del current[past]
            current[layer, name] = _with_rows(graph, whole[name][1], rows)
        return current[layer, name]

    return some


def _with_rows(graph: LayerGraph, csr: Csr, rows: Rows) -> LayerGraph:
    """A graph with the edges of some rows."""
    features = graph.features
    if features is not None:
        features = features[torch.repeat_interleave(rows, csr.indptr.diff())]
    return LayerGraph(
        exchange=graph.exchange,
        relation=graph.relation,
        targets=graph.targets,
        origins=graph.origins,
        features=features,
        csr=only_rows(csr, rows),
        group_rows=graph.group_rows,
        pair_rows=graph.pair_rows,
        needs=graph.needs,
        whole=graph,
    )
