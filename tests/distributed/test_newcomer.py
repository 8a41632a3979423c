"""README's and the guide's blocks in order, as a newcomer would try them: own graph, own model."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import embertide
from tests.support.commands import Commands
from tests.support.document_blocks import blocks
from tests.support.exact import assert_exact
from tests.support.patience import WAIT_SECONDS
from tests.support.pyg import pyg

pytestmark = pytest.mark.distributed

NODES, EDGES, WIDTH = 300, 2000, 16
PAGES = ("README.md", "docs/guide.md")


class Sage(nn.Module):
    """The module that README's description for PyTorch Geometric is of."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(WIDTH, 32), pyg.SAGEConv(32, 8)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(32)])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](self.convs[0](x, edge_index)).relu()
        return self.convs[1](x, edge_index)  # type: ignore[no-any-return]


def texts(language: str) -> list[str]:
    """The code blocks of a language in README, then in the guide."""
    return [block.text for page in PAGES for block in blocks(page, language)]


def commands() -> Iterator[list[str]]:
    """Every ``embertide ...`` line of blocks without a language."""
    for page in PAGES:
        for block in blocks(page, ""):
            for line in block.commands:
                if line.startswith("embertide "):
                    yield shlex.split(line)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """README's first job, with generated data; ids are any numbers, 17 and 42 among them."""
    rng = np.random.default_rng(0)
    ids = np.unique(np.concatenate([[17, 42], rng.integers(0, 10**9, NODES)]))
    ends = rng.integers(0, len(ids), (2, EDGES))
    features = rng.normal(size=(len(ids), WIDTH)).astype(np.float32)
    for name in ("data/edges", "data/features", "model"):
        (tmp_path / name).mkdir(parents=True)
    edges = pa.table({"src": ids[ends[0]], "dst": ids[ends[1]]})
    pq.write_table(edges, tmp_path / "data/edges/0.parquet")
    order = rng.permutation(len(ids))
    vectors = pa.array(list(features[order]), pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": ids[order], "x": vectors}), tmp_path / "data/features/0.parquet")
    (tmp_path / "job.yaml").write_text(texts("yaml")[0])
    (tmp_path / "model/model.yaml").write_text(
        next(block for block in texts("yaml") if block.startswith("library: pyg"))
    )
    torch.manual_seed(0)
    model = Sage()
    model.norms[0].running_mean.normal_()
    torch.save(model.state_dict(), tmp_path / "model/model.pt")
    with torch.no_grad():
        expected = model.double().eval()(torch.from_numpy(features).double(), torch.tensor(ends))
    np.savez(tmp_path / "expected.npz", ids=ids, vectors=expected.numpy())
    return tmp_path


def say(folder: Path, words: list[str]) -> str:
    """The output of a command that has to succeed, in an interpreter of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True,
        timeout=WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{shlex.join(words)}\n{ended.stderr}"
    return ended.stdout


def test_the_commands_run_in_order(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    said: dict[str, str] = {}
    output, quick = folder / "embeddings", Commands(tmp_path_factory.mktemp("commands"))
    say(folder, ["embertide", "run", "job.yaml"])  # yesterday's, to go back to
    for path in (folder / "model").iterdir():
        path.touch()  # as after a training with the same result
    for command in commands():
        words = [str(folder / "toy") if word == "/data/toy" else word for word in command]
        if words[1] == "run":  # today's edges have come, or the version would be confirmed
            (folder / "data/edges/0.parquet").touch()
        done = quick.run(*words[1:], folder=folder)
        assert done.code == 0, f"{shlex.join(words)}\n{done.err}"
        said[" ".join(command)] = done.out
    assert len(said) >= 8
    assert "Published" in said["embertide run job.yaml"]
    assert len(said["embertide neighbors job.yaml 42"].splitlines()) > 5
    assert len(embertide.list_versions(output)) == 4
    expected = np.load(folder / "expected.npz")
    for version in embertide.list_versions(output):
        ids, vectors = embertide.read(output, version.version).to_numpy()
        order = np.argsort(ids)
        assert (ids[order] == expected["ids"]).all()
        assert_exact(vectors[order], expected["vectors"])
