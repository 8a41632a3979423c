"""What is said of graphs with node types, and of features of edges: by jobs and by commands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from embertide.errors import ModelError
from embertide.io.storage.opening import open_storage
from embertide.models.read import read_files
from embertide.models.summary import summarise
from embertide.spec.manifest import EmbeddingJob
from embertide.tracing.export import export_module
from embertide.tracing.graph_types import named_types
from embertide.tracing.prove.agreement import TOLERANCE
from embertide.tracing.record.graphs import GraphTypes
from tests.support.export_texts import code_of, module_of
from tests.support.models import Files, shake
from tests.support.typed_files import write_typed_job

FILE = "exports/hetero_models.txt"


def test_a_summary_has_types() -> None:
    module, options = module_of(FILE, "hgt_dblp")
    program = export_module(module, **options).exported.program
    model = summarise(program, "pyg", ["rows", "HGTConv", "HGTConv"])
    assert model.inputs == {"author": 5, "paper": 6, "term": 3}
    assert model.results == {"author": 3}
    assert model.layers[0].results == {"author": 4, "paper": 4, "term": 4}
    assert model.layers[1].results == {"author": 4, "paper": 4}
    relations = {step.relation for step in model.layers[1].steps} - {""}
    assert relations == set(options["graph"].relations) - {"paper:to:term"}
    assert {step.node_type for step in model.layers[0].steps} == {"author", "paper", "term"}


@pytest.mark.parametrize("window", [{}, {"window": {"last": "7d", "of": "dt=%Y-%m-%d"}}])
def test_a_job_names_its_types(tmp_path: Path, window: dict[str, Any]) -> None:
    """Also a template, which has no day yet."""
    job = write_typed_job(tmp_path)
    job["spec"]["input"]["edges"][0] |= window
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    types = named_types(tmp_path / "job.yaml", open_storage(None))
    assert types.nodes == {"user": 7, "item": 5, "tag": 4, "lone": 0}
    assert types.relations[:2] == ("user:buys:item", "item:bought_by:user")


def test_the_commands_tell_types(tmp_path: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    user = code_of(FILE, "own gat")
    torch.save(shake(user.OwnGat()).state_dict(), tmp_path / "best.pt")
    edges = [":".join(one) for one in user.TRIPLES]
    graph = json.dumps({"nodes": user.NODES, "edges": edges})
    code, out, _ = cli(
        *("export", f"{user.__file__}:OwnGat", "--graph", graph),
        *("--weights", str(tmp_path / "best.pt"), "--out", str(tmp_path / "model")),
    )
    assert code == 0
    assert re.search(r"largest error \S+ for paper \(up to", out)
    proof = json.loads((tmp_path / "model" / "proof.json").read_text())
    assert set(proof["errors"]) == {"paper"}
    code, out, _ = cli("show", str(tmp_path / "model"), "--steps")
    assert code == 0
    assert "paper 6 → 6" in out
    code, out, _ = cli("show", str(tmp_path / "model"), "--json")
    steps = [(one["node_type"], one["relation"]) for one in json.loads(out)["layers"][0]["steps"]]
    assert code == 0
    assert {("author", ""), ("paper", ""), ("paper", "author:to:paper")} == set(steps)


# ---- what goes wrong


@pytest.mark.parametrize(
    ("graph", "told"),
    [
        ('{"nodes": {"a": 5}', "the graph is no JSON"),
        ({"nodes": {"a": "5"}, "edges": ["a:x:a"]}, "columns of each type's features"),
        ({"nodes": {"a": 5}}, "columns of each type's features"),
        ({"nodes": {"a": 5}, "edges": ["a:a"]}, "edges have 'a:a'; write"),
        ({"nodes": {"a": 5}, "edges": [("a", "x", "b")]}, "a:x:b is of a node type 'b'"),
        ({"nodes": {"a": 5}, "edges": ["a:x:a"] * 2}, "name each once"),
    ],
)
def test_graphs_that_cannot_be_read(graph: Any, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        named_types(graph, Files())  # type: ignore[arg-type]


def test_a_job_states_which_relations_have_weights(tmp_path: Path) -> None:
    manifest = write_typed_job(tmp_path)
    storage, edges = open_storage(None), manifest["spec"]["input"]["edges"]
    types = named_types(EmbeddingJob.model_validate(manifest), storage)
    assert types.weighted == frozenset({"user:buys:item", "item:bought_by:user"})
    del edges[0]["columns"]["weight"]
    types = named_types(EmbeddingJob.model_validate(manifest), storage)
    assert types.weighted is None


def test_a_job_tells_columns_of_edges(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 6), "f4"))
    (tmp_path / "edges.csv").write_text("src,dst,a,b\n0,1,0.5,1\n2,3,0,2\n")
    edges = {
        "name": "knows", "sourceType": "user", "destinationType": "user", "reverse": "known_by",
        "uri": f"file://{tmp_path}/edges.csv", "format": "csv",
        "features": {"columns": ["a", "b"]},
    }  # fmt: skip
    features = {"uri": f"file://{tmp_path}/x.npy", "format": "npy"}
    job = {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {"name": "edges"},
        "spec": {
            "input": {"edges": [edges], "nodes": [{"name": "user", "features": features}]},
            "model": {"uri": f"file://{tmp_path}/model"},
            "output": {"uri": f"file://{tmp_path}/out"},
        },
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    types = named_types(tmp_path / "job.yaml", open_storage(None))
    both = {"user:knows:user": 2, "user:known_by:user": 2}
    assert types == GraphTypes({"user": 6}, tuple(both), both)


def test_the_command_says_columns_of_edges(
    tmp_path: Path, cli: Callable[..., tuple[int, str, str]]
) -> None:
    user = code_of("exports/edge_models.txt", "own")
    torch.save(shake(user.Own()).state_dict(), tmp_path / "best.pt")
    command = ("export", f"{user.__file__}:Own", "--edge-features", "3")
    out = str(tmp_path / "model")
    code, told, _ = cli(*command, "--weights", str(tmp_path / "best.pt"), "--out", out, "--json")
    assert code == 0
    assert json.loads(told)["proof"]["largest_error"] <= TOLERANCE
    program = read_files(open_storage(None), f"file://{out}").program()
    assert program.edge_columns() == {"": 3}
