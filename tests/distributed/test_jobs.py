"""Whole jobs, from files to published rows, against the float64 reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embertide.engine.stages.csr import sample_layer
from embertide.facts.telemetry.recorder import NullRecorder
from embertide.graph.exchange import Exchange
from embertide.graph.idmap import HashedIds
from embertide.grid import Grid, RowRanges
from embertide.io.storage.opening import open_storage
from embertide.kernels.edge_sort import pack
from embertide.launch.local import run_job
from embertide.models.read import read_model
from embertide.models.reference import LayerGraph, run_reference
from embertide.spec.grid import GridShape
from tests.support.exact import assert_exact
from tests.support.job_files import EDGE_COLUMNS, WIDTH, JobFiles, write_job
from tests.support.sorted_edges import build_csr
from tests.support.world import NODES, Graph, make_features, make_graph

pytestmark = pytest.mark.distributed

FULL_WEIGHTED = make_graph(weighted=True)
FULL = make_graph()
FEATURED = make_graph(features=len(EDGE_COLUMNS))


def run(files: JobFiles, grid: tuple[int, int]) -> torch.Tensor:
    """[N, D'] as published."""
    report = run_job(files.job, grid=GridShape.of(*grid), threads=1)
    assert report.rows == NODES
    return files.published()


def check_exact(found: torch.Tensor, files: JobFiles, graphs: list[LayerGraph]) -> None:
    program = read_model(open_storage(None), files.job.spec.model.uri)
    assert_exact(found, run_reference(program, graphs, files.features))


def undirected(graph: Graph) -> Graph:
    """Every edge both ways, but each loop once."""
    other = graph.src != graph.dst
    return replace(
        graph,
        src=np.concatenate([graph.src, graph.dst[other]]),
        dst=np.concatenate([graph.dst, graph.src[other]]),
    )


def features_both_ways(graph: Graph) -> Graph:
    """As :func:`undirected`; an edge has its features both ways."""
    assert graph.features is not None
    other = graph.src != graph.dst
    features = np.concatenate([graph.features, graph.features[other]])
    return replace(undirected(graph), features=features)


def last_features_only(graph: Graph) -> Graph:
    """Of several edges between two nodes the one whose features are last."""
    assert graph.features is not None
    rows = sorted(zip(graph.src, graph.dst, map(tuple, graph.features.tolist()), strict=True))
    kept = {(src, dst): features for src, dst, features in rows}
    src, dst = np.array(list(kept)).T
    return replace(graph, src=src, dst=dst, features=np.array(list(kept.values()), np.float32))


def without_duplicates(graph: Graph) -> Graph:
    src, dst = np.array(sorted(set(zip(graph.src, graph.dst, strict=True)))).T
    return replace(graph, src=src, dst=dst)


def heaviest_only(graph: Graph) -> Graph:
    assert graph.weight is not None
    best: dict[tuple[int, int], float] = {}
    for src, dst, weight in zip(graph.src, graph.dst, graph.weight, strict=True):
        best[src, dst] = max(best.get((src, dst), 0.0), weight)
    src, dst = np.array(list(best)).T
    return Graph(src, dst, np.array(list(best.values()), np.float32))


def without_loops(graph: Graph) -> Graph:
    other = graph.src != graph.dst
    weight = None if graph.weight is None else graph.weight[other]
    return replace(graph, src=graph.src[other], dst=graph.dst[other], weight=weight)


def with_one_loop_each(graph: Graph) -> Graph:
    """One self-loop at every node; the graph carries nothing that would tell several apart."""
    other, nodes = without_loops(graph), np.arange(graph.nodes)
    return replace(
        other, src=np.concatenate([other.src, nodes]), dst=np.concatenate([other.dst, nodes])
    )


def with_one_more_loop_each(graph: Graph) -> Graph:
    """An added self-loop has weight 1 and features of 1."""
    nodes, (weight, features) = np.arange(graph.nodes), (graph.weight, graph.features)
    if weight is not None:
        weight = np.concatenate([weight, np.ones(graph.nodes, np.float32)])
    if features is not None:
        features = np.concatenate([features, np.ones((graph.nodes, features.shape[1]), np.float32)])
    src, dst = np.concatenate([graph.src, nodes]), np.concatenate([graph.dst, nodes])
    return replace(graph, src=src, dst=dst, weight=weight, features=features)


JOBS: dict[str, tuple[dict[str, Any], Graph, Callable[[Graph], Graph]]] = {
    "dense parquet, weighted gcn": ({}, FULL_WEIGHTED, lambda graph: graph),
    "dense npy, heavier duplicates": (
        {"nodes": "npy", "edges": "csv", "duplicates": "remove", "output": "npy"},
        FULL_WEIGHTED,
        heaviest_only,
    ),
    "dense npy edges, undirected sage": (
        {"edges": "npy", "conv": "sage", "directed": False},
        FULL,
        undirected,
    ),
    "int64 csv, simple undirected gat": (
        {
            "ids": "int64", "edges": "csv", "nodes": "npy", "conv": "gat", "directed": False,
            "duplicates": "remove", "selfLoops": "remove",
        },
        FULL,
        lambda graph: without_duplicates(without_loops(undirected(graph))),
    ),
    "features of edges, both ways, with loops": (
        {"ids": "int64", "conv": "edge_gat", "directed": False, "selfLoops": "addToAll"},
        FEATURED,
        lambda graph: with_one_more_loop_each(features_both_ways(graph)),
    ),
    "features of edges in csv, no duplicates": (
        {"edges": "csv", "conv": "edge_gat", "duplicates": "remove"},
        FEATURED,
        last_features_only,
    ),
    "features of edges that no step reads": ({"conv": "gcn"}, FEATURED, lambda graph: graph),
    "string parquet, gatv2 with a loop each": (
        {"ids": "string", "conv": "gatv2", "selfLoops": "addRemaining"},
        FULL,
        with_one_loop_each,
    ),
    "weighted gcn with one more loop each": (
        {"selfLoops": "addToAll"},
        FULL_WEIGHTED,
        with_one_more_loop_each,
    ),
    "weighted gcn with other loops": (
        {"ids": "int64", "selfLoops": "replace"},
        FULL_WEIGHTED,
        lambda graph: with_one_more_loop_each(without_loops(graph)),
    ),
}  # fmt: skip


FIRST = ("string parquet, gatv2 with a loop each", "int64 csv, simple undirected gat")
GRIDS = ((3, 1), (1, 1), (1, 3), (2, 2))
"""On which jobs take turns."""


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        pytest.param(name, GRIDS[at % 4], marks=[pytest.mark.tier(1)] if name in FIRST else [])
        for at, name in enumerate(JOBS)
    ],
)
def test_published_rows_are_the_reference(tmp_path: Path, name: str, grid: tuple[int, int]) -> None:
    options, graph, meant = JOBS[name]
    files = write_job(tmp_path, graph, make_features(WIDTH), **options)
    check_exact(run(files, grid), files, [meant(graph).layer()] * 2)


FANOUT = [3, 5]


def sampled_layers(files: JobFiles, seed: int) -> list[LayerGraph]:
    """The layer graphs that a job samples, made in this process; ends as positions in names."""
    exchange = Exchange(Grid(GridShape.of(1, 1)), torch.device("cpu"), NullRecorder())
    if files.job.spec.input.nodes[0].ids == "string":
        ids = HashedIds(exchange, [np.array(files.names)], "string", "names")
        dense = ids.find(np.array(files.names))
        keys = ids.original(RowRanges((0, NODES), 1))[1]
    else:
        dense = np.arange(NODES)
        keys = dense.view(np.uint64)
    edges = pack(dense[files.graph.dst], dense[files.graph.src], NODES)
    csr = build_csr(edges, None, NODES, NODES, first=0, remove_duplicates=False)
    position = torch.from_numpy(np.argsort(dense))
    layers: list[LayerGraph] = []
    for layer, fanout in enumerate(FANOUT):
        sample = sample_layer(csr, keys, fanout, seed, layer)
        layers.append((position[sample.cols.long()], position[sample.row_ids()], None))
    return layers


@pytest.mark.parametrize("ids", ["dense", "string"])
def test_samples_are_the_same_on_every_grid(tmp_path: Path, ids: str) -> None:
    files = write_job(
        tmp_path, FULL, make_features(WIDTH), ids=ids, inference={"fanout": FANOUT, "seed": 11}
    )
    expected = sampled_layers(files, 11)
    assert len(expected[0][0]) < len(FULL.src)
    for grid in ((2, 2), (1, 2)):
        check_exact(run(files, grid), files, expected)


def test_sampled_edges_have_their_features_on_every_grid(tmp_path: Path) -> None:
    found = {}
    for grid in ((1, 1), (2, 2)):
        files = write_job(
            tmp_path / str(grid), FEATURED, make_features(WIDTH), conv="edge_gat",
            inference={"fanout": FANOUT, "seed": 11},
        )  # fmt: skip
        found[grid] = run(files, grid)
    assert_exact(found[2, 2], found[1, 1].double())
    program = read_model(open_storage(None), files.job.spec.model.uri)
    full = run_reference(program, [FEATURED.layer()] * 2, files.features)
    assert float((found[1, 1] - full).abs().max()) > 0.01


def test_runs_repeat_bit_by_bit_and_seeds_differ(tmp_path: Path) -> None:
    def embeddings(name: str, seed: int) -> torch.Tensor:
        files = write_job(
            tmp_path / name, FULL, make_features(WIDTH), inference={"fanout": FANOUT, "seed": seed}
        )
        return run(files, (2, 2))

    first, second, other = embeddings("a", 1), embeddings("b", 1), embeddings("c", 2)
    assert torch.equal(first, second)
    isolated = torch.arange(NODES) >= 93
    assert not torch.equal(first, other)
    assert torch.equal(first[isolated], other[isolated])
