"""Jobs of several node types in the box: the example with its module, and made-up ones."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from safetensors.torch import load_file

import embertide
from tests.support.commands import Commands
from tests.support.exact import assert_exact
from tests.support.paths import ROOT
from tests.support.pyg import pyg

pytestmark = pytest.mark.distributed

EXAMPLE = ROOT / "examples" / "debian-hetero"
KEPT = 300
"""Packages of the whole, so that the test takes seconds."""


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The example's model.py and train.py, imported as they import each other."""
    assert pyg, "imported first, since PyG warns as it is"
    monkeypatch.syspath_prepend(str(EXAMPLE))
    return importlib.import_module("model"), importlib.import_module("train")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with its first packages and their edges."""
    folder = tmp_path_factory.mktemp("examples")
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    given, known = job["spec"]["input"], {}
    for node in given["nodes"]:
        table = pq.read_table(EXAMPLE / node["features"]["uri"])
        table = table[:KEPT] if node["name"] == "package" else table
        known[node["name"]] = set(table["id"].to_pylist())
        node["features"]["uri"] = keep(table, folder / node["name"])
    for edges in given["edges"]:
        table, ends = pq.read_table(EXAMPLE / edges["uri"]), ("source", "destination")
        inside = [
            [one in known[edges[f"{end}Type"]] for one in table[end].to_pylist()] for end in ends
        ]
        edges["uri"] = keep(table.filter(np.all(inside, axis=0)), folder / edges["name"])
    shutil.copytree(EXAMPLE / "model", folder / "model")
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return folder


def keep(table: Any, folder: Path) -> str:
    folder.mkdir()
    pq.write_table(table, folder / "0.parquet")
    return str(folder)


def test_it_publishes_what_its_module_gives(
    small: Path, scripts: tuple[Any, Any], tmp_path: Path
) -> None:
    """The folder that is shipped is the module's beside it, with the weights in that folder."""
    done = Commands(tmp_path).run("run", str(small / "job.yaml"), "--grid", "2x1", "-q")
    assert done.code == 0, done.err
    model, train = scripts
    features = {name: small / name for name in model.WIDTHS}
    graph = train.read_graph(small, features)
    module = model.Packages().double()
    (weights,) = (small / "model").glob("*.safetensors")
    stored = load_file(weights)  # of the program, which has some of its own beside the module's
    module.load_state_dict({name: stored[name] for name in module.state_dict()})
    with torch.no_grad():
        x = {name: values.double() for name, values in graph.x.items()}
        expected = module(x, graph.edges)
    for name, values in expected.items():
        ids, vectors = embertide.read(small / "output", node_type=name).to_numpy()
        rows = {one: at for at, one in enumerate(pq.read_table(features[name])["id"].to_pylist())}
        assert sorted(ids.tolist()) == sorted(rows)
        assert_exact(vectors, values[[rows[one] for one in ids.tolist()]])


def test_its_data_is_what_the_read_me_says() -> None:
    """Every kind of dependency of the example beside it, once."""
    homogeneous = pq.read_table(ROOT / "examples" / "debian" / "data" / "edges")
    parts = [
        len(pq.read_table(EXAMPLE / "data" / name))
        for name in ("depends", "recommends", "suggests")
    ]
    assert sum(parts) == len(homogeneous)


def test_a_made_up_job_runs(tmp_path: Path) -> None:
    """Users and items have features; tags have none and get embeddings all the same."""
    commands, job = Commands(tmp_path), tmp_path / "job"
    size = ("--nodes", "200", "--edges", "1000", "--width", "8", "--hidden", "8", "--layers", "2")
    made = commands.run("synth", str(job), "--hetero", *size, "--embedding", "4", "-q")
    assert made.code == 0, made.err
    done = commands.run("run", str(job / "job.yaml"), "--grid", "2x1", "-q")
    assert done.code == 0, done.err
    for name, count in {"user": 122, "item": 75, "tag": 3}.items():
        ids, vectors = embertide.read(job / "embeddings", node_type=name).to_numpy()
        assert sorted(ids.tolist()) == list(range(count))
        assert vectors.shape == (count, 4)
        assert np.isfinite(vectors).all()
        assert len(np.unique(vectors, axis=0)) > 1
