"""The blocks of README and the guide, in order, as a newcomer tries them: own graph, own model."""

from __future__ import annotations

import re
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
GUIDE = "docs/guide.md"


class Sage(nn.Module):
    """The module that the guide's description for PyTorch Geometric is of."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(WIDTH, 32), pyg.SAGEConv(32, 8)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(32)])

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](self.convs[0](x, edge_index)).relu()
        return self.convs[1](x, edge_index)  # type: ignore[no-any-return]


def texts(language: str) -> list[str]:
    """The guide's code blocks of a language."""
    return [block.text for block in blocks(GUIDE, language)]


def commands() -> Iterator[list[str]]:
    """Every ``embertide ...`` line of blocks without a language."""
    for block in blocks(GUIDE, ""):
        for line in block.commands:
            if line.startswith("embertide "):
                yield shlex.split(line)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The guide's first job, with generated data; ids are any numbers, 17 and 42 among them."""
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


def masked(text: str) -> str:
    """A command's output without numbers, borders, names of versions and where lines are broken."""
    text = re.sub(r"\d{8}[Tt]\d{6}[Zz][-_]\w{6}", "VERSION", text)
    text = re.sub(
        r"file://\S*(?=/embeddings)|(?<=run )\S*(?=/job.yaml)", "AT", text.replace("shop", "AT")
    )
    return " ".join(re.sub(r"[\d.,]+(e-\d+)?( [kM])?", "N", text.replace("─", "")).split())


def run_page(page: str, folder: Path) -> None:
    """Write a page's files, run its commands in order, and compare what they print with the page.

    Each runs in another interpreter; ``...`` stands for lines that are left out.
    """
    for block in blocks(page):
        if block.file or block.language == "yaml":
            (folder / (block.file or "job.yaml")).write_text(block.text)
        for command, shown in block.shown:
            words = shlex.split(command.replace("$PWD", str(folder)))
            printed = masked(say(folder, words[1:] if words[0] == "python" else ["-m", *words]))
            for part in shown.split("...\n"):
                assert masked(part) in printed, command


def test_readme_shows_what_its_commands_print(tmp_path: Path) -> None:
    run_page("README.md", tmp_path)
    ids, vectors = embertide.read(tmp_path / "embeddings").to_numpy()
    assert (ids.shape, vectors.shape) == ((10_000,), (10_000, 16))


def test_the_tutorial_shows_what_its_commands_print(tmp_path: Path) -> None:
    run_page("docs/tutorial.md", tmp_path)
    first, second = embertide.list_versions(tmp_path / "embeddings")
    assert (first.rows, second.rows, second.current) == (840, 870, True)


def say(folder: Path, words: list[str]) -> str:
    """The output of a command that has to succeed, in an interpreter of its own."""
    ended = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True,
        timeout=WAIT_SECONDS, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{shlex.join(words)}\n{ended.stderr}"
    return ended.stdout


def test_the_commands_run_in_order(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    said: dict[str, str] = {}
    output, quick = folder / "embeddings", Commands(tmp_path_factory.mktemp("commands"))
    say(folder, ["-m", "embertide", "run", "job.yaml"])  # yesterday's, to go back to
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
