"""A module as a user trains it: exported, shown, run on a grid, and what it gives itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.small_job import NODES, WIDTH, SmallJob

pytestmark = pytest.mark.distributed

MODELS = """
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GCNConv


class Net(torch.nn.Module):
    def __init__(self, in_channels, hidden=6):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden, cached=True)
        self.norm = torch.nn.BatchNorm1d(hidden)
        self.conv2 = GATConv(hidden, 3, heads=2, concat=False)

    def forward(self, x, edge_index):
        h = self.norm(self.conv1(x, edge_index)).relu()
        h = F.dropout(h * torch.sigmoid(h), 0.5, training=self.training)
        return F.log_softmax(self.conv2(h, edge_index), dim=-1)
"""
TRAIN = f"""
import warnings
warnings.simplefilter("ignore")
import numpy, torch, models
torch.manual_seed(1)
net = models.Net({WIDTH})
net.norm.running_mean.normal_(), net.norm.running_var.uniform_(0.5, 2)
torch.save(net.state_dict(), "best.pt")
ids = torch.arange({NODES})
x = torch.tensor(numpy.random.default_rng(0).normal(size=({NODES}, {WIDTH})).astype("f4"))
with torch.no_grad():
    numpy.save("own.npy", net.eval()(x, torch.stack([ids, ids.roll(1)])).numpy())
"""
COMPARE = """
import numpy, embertide
ids, vectors = embertide.read("embeddings").to_numpy()
own = numpy.load("own.npy")[ids]
assert numpy.abs(own - vectors).max() < 1e-5 * numpy.abs(own).max(), (own, vectors)
"""


def test_a_trained_module_becomes_embeddings(tmp_path: Path) -> None:
    SmallJob.make(tmp_path)
    for one in (tmp_path / "model").iterdir():
        one.unlink()
    (tmp_path / "models.py").write_text(MODELS)
    _run(tmp_path, "-c", TRAIN)
    told = _embertide(
        tmp_path,
        *("export", "models.py:Net", "--init", json.dumps({"in_channels": WIDTH})),
        *("--weights", "best.pt", "--out", "model", "--json"),
    )
    assert told["proof"]["largest_error"] <= told["proof"]["tolerance"] == 1e-9
    # What runs it has neither the user's file nor their packages.
    (tmp_path / "models.py").unlink()
    report = _embertide(tmp_path, "run", "job.yaml", "--grid", "2x2", "--json")
    assert report["grid"] == [2, 2]
    assert [one["conv"] for one in report["facts"]["layers"]] == ["GCNConv conv1", "GATConv conv2"]
    _run(tmp_path, "-c", COMPARE)


def _embertide(folder: Path, *args: str) -> dict[str, object]:
    """The last JSON object that a command writes."""
    found: dict[str, object] = json.loads(_run(folder, "-m", "embertide", *args).splitlines()[-1])
    return found


def _run(folder: Path, *args: str) -> str:
    ended = subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
