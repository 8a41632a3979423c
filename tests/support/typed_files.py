"""A job of several node types on files: each type with its own kind of ids, each edge type its own
format.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import torch

from embertide.io.storage.opening import open_storage
from embertide.io.versions.reading import read_version
from embertide.program.steps import Program
from tests.support.exact import assert_exact
from tests.support.program_files import write_program
from tests.support.typed_world import COUNTS, EDGE_FEATURES, make_edges, make_typed_features

FEATURE_COLUMNS = [f"f{number}" for number in range(EDGE_FEATURES)]
"""Of ``buys``, where its edges have features."""


def names_of(node_type: str) -> list[Any]:
    """[N] the id of each node in the files."""
    count = COUNTS[node_type]
    if node_type == "user":
        return [f"user-{'ñ' * (k % 3)}{k}" for k in range(count)]
    return (
        [(k + 1) * 10**12 - 7 * k for k in range(count)] if node_type == "item" else [*range(count)]
    )


def write_typed_job(
    folder: Path, program: Program | None = None, *, edge_features: bool = False
) -> dict[str, Any]:
    """Write all inputs, and a program as the model; returns the manifest.

    Args:
        edge_features: whether the edges of ``buys`` have theirs, in columns ``f0``, ``f1``.
    """
    if program is not None:
        write_program(folder / "model", program)
    return {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {"name": "typed"},
        "spec": {
            "input": {"edges": _write_edges(folder, edge_features), "nodes": _write_nodes(folder)},
            "model": {"uri": f"file://{folder}/model"},
            "inference": {"groupBytes": 4096},
            "output": {"uri": f"file://{folder}/out", "format": "npy"},
            "refresh": {"mode": "full"},
        },
    }


def _write_nodes(folder: Path) -> list[dict[str, Any]]:
    features = {name: values.numpy() for name, values in make_typed_features().items()}
    for name in ("user", "item", "tag", "lone"):
        (folder / name).mkdir(parents=True)
    order = np.random.default_rng(1).permutation(COUNTS["user"])
    vectors = pa.array([features["user"][i].tolist() for i in order])
    users = [names_of("user")[i] for i in order]
    pq.write_table(pa.table({"id": users, "x": vectors}), folder / "user" / "x.parquet")
    np.save(folder / "item" / "x.npy", features["item"])
    np.save(folder / "item-ids.npy", np.array(names_of("item")))
    np.save(folder / "tag" / "x.npy", features["tag"])
    pq.write_table(pa.table({"id": names_of("lone")}), folder / "lone" / "ids.parquet")
    return [
        {
            "name": "user", "ids": "string",
            "features": {"uri": f"file://{folder}/user", "vectorColumn": "x"},
        },
        {
            "name": "item", "ids": "int64",
            "features": {
                "uri": f"file://{folder}/item", "format": "npy",
                "idsUri": f"file://{folder}/item-ids.npy",
            },
        },
        {"name": "tag", "features": {"uri": f"file://{folder}/tag", "format": "npy"}},
        {"name": "lone", "ids": "int64", "table": {"uri": f"file://{folder}/lone"}},
    ]  # fmt: skip


def _write_edges(folder: Path, edge_features: bool) -> list[dict[str, Any]]:
    ends = {
        "buys": ("user", "item", "csv"), "follows": ("user", "user", "parquet"),
        "has": ("item", "tag", "npy"), "never": ("tag", "user", "tsv"),
    }  # fmt: skip
    given: list[dict[str, Any]] = []
    for name, (source, destination, form) in ends.items():
        edges = make_edges()[name]
        src = [names_of(source)[i] for i in edges.src]
        dst = [names_of(destination)[i] for i in edges.dst]
        columns = {"src": src, "dst": dst}
        if edges.weight is not None:
            columns["w"] = edges.weight.tolist()
        if edges.features is not None and edge_features:
            columns |= dict(zip(FEATURE_COLUMNS, edges.features.T.tolist(), strict=True))
        path = folder / f"{name}.{form}"
        if form == "npy":
            np.save(path, np.array([src, dst]).T)
        elif form == "parquet":
            pq.write_table(pa.table(columns), path, row_group_size=50)
        else:
            mark = "\t" if form == "tsv" else ","
            options = pa.csv.WriteOptions(delimiter=mark)
            pa.csv.write_csv(pa.table(columns), path, options)
        given.append(
            {
                "name": name, "sourceType": source, "destinationType": destination,
                "uri": f"file://{path}", "format": form,
            }
        )  # fmt: skip
    given[0] |= {"columns": {"weight": "w"}, "reverse": "bought_by"}
    given[2] |= {"reverse": "of"}
    if edge_features:
        given[0] |= {"features": {"columns": FEATURE_COLUMNS}}
    return given


def positions(node_type: str, ids: Any) -> torch.Tensor:
    """[n] the nodes of published ids."""
    at = {name: number for number, name in enumerate(names_of(node_type))}
    return torch.tensor([at[name] for name in ids.tolist()])


def check_rows(
    folder: Path, node_type: str, expected: torch.Tensor, result: str | None = None
) -> np.ndarray:
    """[N, D] the rows of a type as the job published them: those expected, one for each node."""
    uri = f"file://{folder}/out"
    found = read_version(open_storage(None), uri, node_type=node_type, result=result)
    ids, vectors = found.to_numpy()
    assert sorted(ids.tolist()) == sorted(names_of(node_type))
    assert_exact(vectors, expected[positions(node_type, ids)])
    return vectors
