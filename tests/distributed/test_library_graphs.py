"""The fields of `input.edges` make of a graph what the libraries' functions make of it.

Each case says what training did to the graph, by running the library, and the manifest's fields for
it; the edges that workers build from the files are the library's, with their weights and features.
The graph has parallel edges, one node with several self-loops, and isolated nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from embertide.models.dgl_interop import why_no_dgl
from embertide.spec.manifest import load_manifest
from tests.support.built_graphs import Edge, all_edges, build_graphs
from tests.support.job_files import WIDTH, write_job
from tests.support.library_graphs import (
    HeteroData,
    dgl,
    from_dgl,
    from_pyg,
    to_dgl,
    transforms,
    utils,
)
from tests.support.ranks import on_grid
from tests.support.tiers import later
from tests.support.world import NODES, Graph, make_features, make_graph

pytestmark = pytest.mark.distributed

PLAIN = make_graph()
WEIGHTED = make_graph(weighted=True)
FEATURED = make_graph(features=2)
BOTH = make_graph(weighted=True, features=2)


def ascending(graph: Graph) -> Graph:
    """The same edges, the heaviest last."""
    assert graph.weight is not None
    order = np.argsort(graph.weight, kind="stable")
    return Graph(graph.src[order], graph.dst[order], graph.weight[order])


Transform = Callable[[Graph], Graph]
Case = tuple[dict[str, Any], Graph, Transform]
DIRECTIONS = {"directed": False}
SIMPLE = {"duplicates": "remove"}


def pyg(function: Callable[..., Any], **options: Any) -> Transform:
    """A function of `torch_geometric.utils` on the edges and what they carry."""
    return lambda graph: from_pyg(function, graph, **options)


def of_dgl(*functions: Callable[..., Any]) -> Transform:
    """Functions of a DGL graph, one after another."""

    def apply(graph: Graph) -> Graph:
        changed = to_dgl(graph)
        for function in functions:
            changed = function(changed)
        return from_dgl(changed, graph)

    return apply


def then(*transforms: Transform) -> Transform:
    def apply(graph: Graph) -> Graph:
        for transform in transforms:
            graph = transform(graph)
        return graph

    return apply


def largest(function: Callable[..., Any]) -> Transform:
    return pyg(function, reduce="max")


PYG: dict[str, Case] = {
    "add_self_loops": ({"selfLoops": "addToAll"}, PLAIN, pyg(utils.add_self_loops)),
    "add_self_loops, weights": ({"selfLoops": "addToAll"}, WEIGHTED, pyg(utils.add_self_loops)),
    "add_self_loops, features": ({"selfLoops": "addToAll"}, FEATURED, pyg(utils.add_self_loops)),
    "add_remaining_self_loops": (
        {"selfLoops": "addRemaining"}, PLAIN, pyg(utils.add_remaining_self_loops)
    ),
    "add_remaining_self_loops, weights, the heaviest last": (
        {"selfLoops": "addRemaining"}, ascending(WEIGHTED), pyg(utils.add_remaining_self_loops)
    ),
    "remove_self_loops": ({"selfLoops": "remove"}, BOTH, pyg(utils.remove_self_loops)),
    "remove_self_loops, then add_self_loops": (
        {"selfLoops": "replace"}, BOTH,
        then(pyg(utils.remove_self_loops), pyg(utils.add_self_loops)),
    ),
    "to_undirected": (DIRECTIONS | SIMPLE, PLAIN, pyg(utils.to_undirected)),
    "to_undirected, the largest weight": (
        DIRECTIONS | SIMPLE, WEIGHTED, largest(utils.to_undirected)
    ),
    "coalesce": (SIMPLE, PLAIN, pyg(utils.coalesce)),
    "coalesce, the largest weight": (SIMPLE, WEIGHTED, largest(utils.coalesce)),
    "to_undirected, then add_self_loops": (
        DIRECTIONS | SIMPLE | {"selfLoops": "addToAll"}, WEIGHTED,
        then(largest(utils.to_undirected), pyg(utils.add_self_loops)),
    ),
    "to_undirected, then add_remaining_self_loops": (
        DIRECTIONS | SIMPLE | {"selfLoops": "addRemaining"}, WEIGHTED,
        then(largest(utils.to_undirected), pyg(utils.add_remaining_self_loops)),
    ),
    "remove_self_loops, then to_undirected": (
        DIRECTIONS | SIMPLE | {"selfLoops": "remove"}, WEIGHTED,
        then(pyg(utils.remove_self_loops), largest(utils.to_undirected)),
    ),
    "remove_self_loops, to_undirected, add_self_loops": (
        DIRECTIONS | SIMPLE | {"selfLoops": "replace"}, WEIGHTED,
        then(
            pyg(utils.remove_self_loops), largest(utils.to_undirected), pyg(utils.add_self_loops)
        ),
    ),
}  # fmt: skip


def reversed_too(graph: Any) -> Any:
    return dgl.add_reverse_edges(graph, copy_edata=True)


DGL: dict[str, Case] = {} if why_no_dgl() else {
    "add_self_loop": ({"selfLoops": "addToAll"}, PLAIN, of_dgl(dgl.add_self_loop)),
    "add_self_loop, weights, features": (
        {"selfLoops": "addToAll"}, BOTH, of_dgl(dgl.add_self_loop)
    ),
    "remove_self_loop": ({"selfLoops": "remove"}, BOTH, of_dgl(dgl.remove_self_loop)),
    "remove_self_loop, then add_self_loop": (
        {"selfLoops": "replace"}, BOTH, of_dgl(dgl.remove_self_loop, dgl.add_self_loop)
    ),
    "AddSelfLoop": ({"selfLoops": "replace"}, BOTH, of_dgl(dgl.AddSelfLoop())),
    "add_reverse_edges": (DIRECTIONS, BOTH, of_dgl(reversed_too)),
    "to_bidirected": (DIRECTIONS | SIMPLE, PLAIN, of_dgl(dgl.to_bidirected)),
    "to_simple": (SIMPLE, PLAIN, of_dgl(dgl.to_simple)),
    "to_simple, then add_self_loop": (
        SIMPLE | {"selfLoops": "addToAll"}, PLAIN, of_dgl(dgl.to_simple, dgl.add_self_loop)
    ),
    "add_reverse_edges, then add_self_loop": (
        DIRECTIONS | {"selfLoops": "addToAll"}, BOTH, of_dgl(reversed_too, dgl.add_self_loop)
    ),
    "remove_self_loop, add_reverse_edges, add_self_loop": (
        DIRECTIONS | {"selfLoops": "replace"}, BOTH,
        of_dgl(dgl.remove_self_loop, reversed_too, dgl.add_self_loop),
    ),
}  # fmt: skip

CASES = {f"pyg: {name}": case for name, case in PYG.items()}
CASES |= {f"dgl: {name}": case for name, case in DGL.items()}
IDS = ("dense", "int64", "string")


def edges_of(graph: Graph, names: list[Any]) -> list[Edge]:
    weights = [1.0] * len(graph.src) if graph.weight is None else graph.weight.tolist()
    features = [[]] * len(graph.src) if graph.features is None else graph.features.tolist()
    ends = zip(graph.src.tolist(), graph.dst.tolist(), weights, features, strict=True)
    return sorted((names[src], names[dst], weight, *own) for src, dst, weight, own in ends)


@pytest.mark.parametrize("grid", later([(1, 1), (3, 1), (1, 3), (2, 2)], (2, 2)))
def test_edges_are_those_of_the_library(tmp_path: Path, grid: tuple[int, int]) -> None:
    files = [
        write_job(
            tmp_path / str(number), graph, make_features(WIDTH), ids=IDS[number % 3], **options
        )
        for number, (options, graph, _) in enumerate(CASES.values())
    ]
    ranks = on_grid(*grid, build_graphs, [own.job for own in files])
    differ = []
    for number, (name, (_, graph, transform)) in enumerate(CASES.items()):
        expected = edges_of(transform(graph), files[number].names)
        built = all_edges(ranks, number)["node:edge:node"]
        if built != expected:
            differ.append(f"{name}: {len(built)} edges, not {len(expected)}")
    assert differ == []


def of_type(tmp_path: Path, name: str, graph: Graph, ends: tuple[str, str]) -> dict[str, Any]:
    """An edge type whose edges are in a file, with a reverse type ``rev_NAME``."""
    table = {"src": graph.src, "dst": graph.dst, "w": graph.weight, "f": graph.features[:, 0]}
    pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    return {
        "name": name, "sourceType": ends[0], "destinationType": ends[1], "format": "parquet",
        "uri": f"file://{tmp_path}/{name}.parquet", "columns": {"weight": "w"},
        "features": {"columns": ["f"]}, "reverse": f"rev_{name}",
    }  # fmt: skip


def typed(data: Any, graphs: dict[tuple[str, str, str], Graph]) -> Any:
    """The graphs as relations of a ``HeteroData``."""
    for relation, graph in graphs.items():
        data[relation].edge_index = torch.from_numpy(np.stack([graph.src, graph.dst]))
        carried = np.column_stack([graph.weight, graph.features[:, 0]])
        data[relation].edge_attr = torch.from_numpy(carried)
    return data


@pytest.mark.parametrize("grid", later([(1, 1), (2, 2)], (1, 1)))
def test_a_reverse_type_is_that_of_to_undirected(tmp_path: Path, grid: tuple[int, int]) -> None:
    """Within a node type too, where ``merge=False`` keeps the relations apart."""
    graphs = {("user", "buys", "item"): BOTH, ("user", "follows", "user"): BOTH}
    edges = [of_type(tmp_path, name, BOTH, (source, to)) for source, name, to in graphs]
    nodes = [{"name": name, "count": NODES} for name in ("user", "item")]
    job = load_manifest(
        json.dumps(
            {
                "apiVersion": "embertide.dev/v1alpha1",
                "kind": "EmbeddingJob",
                "metadata": {"name": "typed"},
                "spec": {
                    "input": {"edges": edges, "nodes": nodes},
                    "model": {"uri": f"file://{tmp_path}/model"},
                    "output": {"uri": f"file://{tmp_path}/out"},
                },
            }
        )
    )
    built = all_edges(on_grid(*grid, build_graphs, [job]), 0)
    changed = transforms.ToUndirected(merge=False)(typed(HeteroData(), graphs))
    assert set(built) == {":".join(relation) for relation in changed.edge_types}
    for relation in changed.edge_types:
        (src, dst), carried = changed[relation].edge_index, changed[relation].edge_attr
        expected = zip(src.tolist(), dst.tolist(), *carried.T.tolist(), strict=True)
        assert built[":".join(relation)] == sorted(expected)
