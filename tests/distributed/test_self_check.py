"""Rows of every layer computed again: right ones agree, wrong ones are caught."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from embertide.errors import SelfCheckFailed
from embertide.program.steps import Activation, Aggregate, GraphNorm, Linear, Program
from tests.support.catalogue import catalogue
from tests.support.commands import Commands, environment
from tests.support.faults import FAULTS, count_caught
from tests.support.ranks import on_grid
from tests.support.small_job import WIDTH, SmallJob
from tests.support.tasks import check_all
from tests.support.world import GRAPHS, Graph

pytestmark = pytest.mark.distributed


def test_what_needs_all_nodes_is_named_and_the_rest_is_checked() -> None:
    case = next(
        one
        for one in catalogue().values()
        if any(isinstance(s, GraphNorm) for s in one.program.steps)
    )
    programs = [(case.program, case.kind, case.weighted)]
    ((found,),) = on_grid(1, 1, check_all, GRAPHS, programs)
    assert "graph_norm, layer 0) needs a statistic over all nodes" in found.skipped[0]


NODES, ROWS, TRIALS = 2000, 500, 30


def two_layers() -> Program:
    """A product, a sum with factors of both ends, and relu, twice."""
    generator = torch.Generator().manual_seed(1)
    steps, widths, x = [], {"x": 9}, "x"
    for at in range(2):
        steps += [
            Linear(out=f"h{at}", layer=at, x=x, weight=f"w{at}"),
            Aggregate(out=f"a{at}", layer=at, x=f"h{at}", norm="both"),
            Activation(out=f"r{at}", layer=at, x=f"a{at}", kind="relu"),
        ]
        widths |= {f"{name}{at}": 8 for name in "har"}
        x = f"r{at}"
    params = {
        f"w{at}": torch.randn(8, width, generator=generator) for at, width in ((0, 9), (1, 8))
    }
    return Program(steps=tuple(steps), params=params, widths=widths, layers=2, results={"": "r1"})


def random_graph() -> Graph:
    """Ten in-edges of each node on average, fewer of most."""
    g = np.random.default_rng(7)
    src = g.integers(0, NODES, 10 * NODES)
    return Graph(src, (NODES * g.random(10 * NODES) ** 1.5).astype(np.int64), nodes=NODES)


@pytest.mark.parametrize("fault", FAULTS)
def test_one_changed_row_in_a_thousand_is_caught_with_the_stated_probability(fault: str) -> None:
    """With two partitions half of the in-edges read rows that arrive from peers."""
    answers = on_grid(2, 2, count_caught, random_graph(), two_layers(), fault, ROWS, TRIALS)
    assert sum(changed for *_, changed in answers) >= TRIALS
    (caught, chance, in_edges, _), *_ = answers
    assert 0.35 < chance < 0.45
    if fault == "exchange":
        chance = 1 - 0.999 ** (in_edges / 2)
        assert chance > 0.85
    expected, spread = chance * TRIALS, (chance * (1 - chance) * TRIALS) ** 0.5
    assert expected - 3 * spread <= caught


def test_with_all_rows_a_changed_row_is_always_caught() -> None:
    for fault in ("kernel", "memory"):
        ((caught, chance, *_),) = on_grid(
            1, 1, count_caught, random_graph(), two_layers(), fault, NODES, 3
        )
        assert chance == 1.0
        assert caught == 3


FAULT = """
from embertide.program.steps.op import Op

plain = Op.lower

def lower(self, execution):
    made = plain(self, execution)
    if self.steps[0].layer == 1 and self.steps[0].edges is not None:
        made.data[0, 2] += 1
    return made

Op.lower = lower
"""
"""Changes a value in what layer 2 makes, in every process of a command."""


def test_a_run_with_a_fault_says_where_and_publishes_nothing(tmp_path: Path) -> None:
    job = SmallJob.make(tmp_path / "job")
    (tmp_path / "sitecustomize.py").write_text(FAULT)
    env = environment()
    env["PYTHONPATH"] = f"{tmp_path}:{env['PYTHONPATH']}"
    command = [sys.executable, "-m", "embertide", "run", job.manifest, "--grid", "2x1"]
    failed = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert failed.returncode == SelfCheckFailed.exit_code, failed.stderr
    assert "2 of 24 rows that were computed a second time, in float64, differ" in failed.stderr
    assert re.search(r"layer 2, '1\.\w+', node \d+, column 2: .* expected ", failed.stderr)
    assert "Nothing was published" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not list(job.output.rglob("_manifest.json"))
    manifest = yaml.safe_load(Path(job.manifest).read_text())
    manifest["spec"]["inference"] = {"checkedRows": 0}
    Path(job.manifest).write_text(yaml.safe_dump(manifest))
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = job.output.rglob("_manifest.json")
    assert json.loads(found.read_text())["selfCheck"]["state"] == "off"


def test_an_overflow_that_leaves_finite_embeddings_is_no_fault_of_a_machine(tmp_path: Path) -> None:
    """tanh makes 1 and -1 of infinities, some of which have the wrong sign in float32."""
    job = SmallJob.make(tmp_path / "job")
    job.write_model(WIDTH, scale=1e30)
    model = job.model / "model.yaml"
    description = yaml.safe_load(model.read_text())
    description["layers"][-1]["activation"] = "tanh"
    model.write_text(yaml.safe_dump(description))
    failed = Commands(tmp_path).run("run", job.manifest, "--grid", "2x1")
    assert failed.code == SelfCheckFailed.exit_code, failed.err
    assert "so large that float32 overflows" in failed.err
    assert re.search(r"layer 2, '1\.\w+', node \d+, column \d: -?1, expected -?1,", failed.err)
    assert "Check the model's weights" in failed.err
    assert "memory" not in failed.err
    assert not list(job.output.rglob("_manifest.json"))
