"""The example of Debian's archive, from lists of 40 sources to what its published rows measure."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
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

EXAMPLE = ROOT / "examples" / "debian-archive"
LISTS = ROOT / "tests" / "support" / "debian_lists"
"""Names, sections, tags and relations of two releases, as the archive has them."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("archive"))


def build(data: Path) -> Path:
    given = ("--lists", LISTS, "--suites", "sid,trixie", "--out", data)
    script("build.py", *given)
    return data


def script(name: str, *arguments: object) -> str:
    """Run one of the example's scripts as people do; return what it prints."""
    command = [sys.executable, "-W", "ignore", EXAMPLE / name, *arguments]
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What its scripts import as ``model`` and ``train``, which other examples have too."""
    assert pyg, "imported first, since PyG warns as it is"
    for name in ("model", "train"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("train")
    for name in ("model", "train"):
        sys.modules.pop(name, None)


def test_the_graph_is_that_of_the_lists(built: Path, tmp_path: Path) -> None:
    edges = {
        (one["source"], one["destination"]): one["kind"]
        for one in pq.read_table(built / "edges").to_pylist()
    }
    assert edges["src:git", "libpcre2-dev"] == "Build-Depends"
    assert edges["src:git", "git"] == "Binary"
    # An edge to each package that provides a virtual one, and edges that one release alone has.
    assert edges["librust-regex-dev", "librust-memchr-dev"] == "Depends"
    assert {("git", "libcurl3t64-gnutls"), ("exim4", "exim4-daemon-mod")} <= set(edges)
    ids = pq.read_table(built / "features")["id"].to_pylist()
    assert ids == sorted({end for pair in edges for end in pair})
    again = build(tmp_path)
    for name in ("edges/edges.parquet", "features/features.parquet"):
        assert (again / name).read_bytes() == (built / name).read_bytes()


def test_published_rows_are_the_modules_and_answer_questions(
    built: Path, scripts: Any, tmp_path: Path
) -> None:
    """Train, export, run what was seen, evaluate: the commands of the read-me."""
    trained = tmp_path / "trained"
    script("train.py", "--data", built, "--out", trained, "--epochs", "30")
    commands = Commands(tmp_path)
    weights = ("--weights", str(trained / "weights.safetensors"))
    done = commands.run(
        "export", f"{EXAMPLE / 'model.py'}:Archive", *weights, "--out", str(tmp_path / "model")
    )
    assert done.code == 0, done.err
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    job["spec"]["input"]["edges"][0]["uri"] = str(trained / "seen")
    job["spec"]["input"]["nodes"][0]["features"]["uri"] = str(built / "features")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    done = commands.run("run", str(tmp_path / "job.yaml"), "-q")
    assert done.code == 0, done.err

    graph = scripts.read_graph(built)
    hidden = torch.from_numpy(np.load(trained / "hidden.npy"))
    seen = graph.pairs[:, ~hidden]
    module = scripts.Archive().double()
    module.load_state_dict(load_file(trained / "weights.safetensors"))
    with torch.no_grad():
        expected = module(graph.x.double(), torch.cat([seen, seen.flip(0)], dim=1))
    ids, vectors = embertide.read(tmp_path / "output").to_numpy()
    names = pq.read_table(built / "features")["id"].to_pylist()
    rows = {name: row for row, name in enumerate(names)}
    assert sorted(ids.tolist()) == names
    assert_exact(vectors, expected[[rows[name] for name in ids.tolist()]])

    given = ("--rows", tmp_path / "output", "--hidden", trained / "hidden.npy")
    found = json.loads(script("evaluate.py", "--data", built, *given))
    assert found["embeddings"]["MRR"] > found["features"]["MRR"] > 0


def test_ranks_are_those_of_a_plain_loop(scripts: Any) -> None:
    """Known neighbours are no candidates."""
    from debian.links import TEMPERATURE, ranks  # type: ignore[import-not-found]

    torch.manual_seed(0)
    z = torch.randn(30, 4)
    popularity = torch.randint(1, 4, (30,)).float()
    known = torch.randint(30, (2, 80))
    questions = known[:, known[0] != known[1]]
    found = ranks(z, popularity, questions, known)
    unit = (z / z.norm(dim=1, keepdim=True)).double()
    for rank, node, answer in zip(found.tolist(), *questions.tolist(), strict=True):
        score = unit @ unit[node] / TEMPERATURE + popularity.double().log()
        left_out = {node, *known[1][known[0] == node].tolist()}
        others = [score[one] for one in range(30) if one not in left_out]
        assert rank == 1 + sum(bool(one >= score[answer]) for one in others)
