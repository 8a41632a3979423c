"""Inputs that come late or are too small: real runs and containers wait, refuse and publish."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.spec.manifest import load_manifest
from embertide.spec.reports import Ending, InputsReport
from tests.support.commands import Commands, Running
from tests.support.pods import look_pod, plan_pod
from tests.support.small_job import NODES, SmallJob
from tests.support.tiers import later

pytestmark = pytest.mark.distributed

INPUT = 3
RELATION = "node-edge-node"
HALF_CSV = "src,dst\n" + "".join(f"{i},{i + 1}\n" for i in range(NODES // 2))
ALL_CSV = "src,dst\n" + "".join(f"{i},{(i + 1) % NODES}\n" for i in range(NODES))


@pytest.fixture
def small(tmp_path: Path) -> SmallJob:
    return SmallJob.make(tmp_path / "job")


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def write_half(small: SmallJob) -> pa.Table:
    """Leave the first half of the edges; returns the other one."""
    table = pq.read_table(small.edges)
    pq.write_table(table.slice(0, NODES // 2), small.edges)
    return table.slice(NODES // 2)


def current(small: SmallJob) -> dict[str, Any]:
    """The manifest of the current version."""
    latest = json.loads((small.output / "LATEST").read_text())["version"]
    path = small.output / "versions" / latest / "_manifest.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_run_waits_for_the_marker_and_has_all_edges(small: SmallJob, tmp_path: Path) -> None:
    rest = write_half(small)
    ready = {"object": "_SUCCESS", "within": "5m"}
    small.write_manifest(input__edges__0__ready=ready)
    running = Running(tmp_path, "run", small.manifest, "--grid", "1x1", "--json")
    running.await_stage("start")
    while "_SUCCESS is not there" not in running.output():
        assert running.process.poll() is None
    assert not small.output.exists()
    pq.write_table(rest, small.edges.parent / "rest.parquet")
    (small.edges.parent / "_SUCCESS").touch()
    assert running.done(60).code == 0
    assert current(small)["edges"] == NODES
    assert current(small)["read"] == {"edges": {"node:edge:node": NODES}, "nodes": {"node": NODES}}


def test_a_run_that_waits_in_vain(small: SmallJob, commands: Commands) -> None:
    small.edges.unlink()
    small.write_manifest(input__edges__0__ready={"within": "1s"})
    done = commands.run("run", small.manifest, "--grid", "1x1")
    assert done.code == INPUT
    assert "waiting since" in done.err
    assert "inputs were not ready within 1 s (ready.within): edges[0]: " in done.message
    assert not small.output.exists()


def test_plan_and_check_say_whether_inputs_are_ready(small: SmallJob, commands: Commands) -> None:
    small.write_manifest(input__edges__0__ready={"object": "_SUCCESS"})
    done = commands.run("plan", small.manifest)
    assert done.code == 0
    assert "inputs are not ready, a run waits for them: edges[0]" in " ".join(done.out.split())
    refused = commands.run("check", small.manifest, "--against", "none.parquet")
    assert refused.code == INPUT
    assert "inputs are not ready: edges[0]: " in refused.message
    small.edges.unlink()
    refused = commands.run("plan", small.manifest)
    assert refused.code == INPUT
    assert "Without them there is no estimate" in refused.message


def test_half_of_the_edges_is_refused(small: SmallJob, commands: Commands) -> None:
    """Of parquet, whose metadata says it, before any worker starts."""
    assert commands.run("run", small.manifest, "--grid", "2x1").code == 0
    before = current(small)
    write_half(small)
    small.write_manifest(input__maxShrink="10%")
    for command in ("run", "plan"):
        done = commands.run(command, small.manifest, "--grid", "2x1")
        assert done.code == INPUT
        assert f"the input has {NODES // 2} edges" in done.message
        assert f"50.0% fewer than the {NODES} of the last version" in done.message
    assert current(small) == before


@pytest.mark.parametrize("grid", later(["1x1", "2x2"], "2x2"))
def test_half_of_the_lines_is_refused(small: SmallJob, commands: Commands, grid: str) -> None:
    """Of text, whose lines are counted as they are read, on several workers too."""
    small.write_csv(ALL_CSV)
    assert commands.run("run", small.manifest, "--grid", grid).code == 0
    before = current(small)
    assert list(before["read"]["edges"].values()) == [NODES]
    path = small.edges.parent / "part.csv"
    path.write_text(HALF_CSV)
    small.write_manifest(input__edges__0__format="csv", input__maxShrink="10%")
    done = commands.run("run", small.manifest, "--grid", grid)
    assert (done.code, f"the input has {NODES // 2} edges" in done.message) == (INPUT, True)
    small.write_manifest(input__edges__0__format="csv", input__edges__0__minEdges=NODES)
    done = commands.run("run", small.manifest, "--grid", grid)
    assert done.code == INPUT
    assert f"has {NODES // 2} edges, spec.input.edges[0].minEdges is {NODES}" in done.message
    assert current(small) == before


def test_a_look_in_a_pod(small: SmallJob, tmp_path: Path) -> None:
    """It ends after one look, whatever it finds, and says what is missing."""
    small.write_manifest(input__edges__0__ready={"object": "_SUCCESS", "within": "90m"})
    job = load_manifest(Path(small.manifest))
    code, told = look_pod(tmp_path / "first", job)
    report = InputsReport.model_validate(told)
    assert code == 0
    assert [(m.field, m.within_seconds) for m in report.missing] == [("edges[0]", 5400)]
    assert "_SUCCESS is not there" in report.missing[0].why
    (small.edges.parent / "_SUCCESS").touch()
    code, told = look_pod(tmp_path / "second", job)
    assert (code, InputsReport.model_validate(told).missing) == (0, [])


def test_a_look_that_cannot_be_taken(small: SmallJob, tmp_path: Path) -> None:
    small.write_manifest(
        input__edges__0__ready={},
        input__edges__0__uri="s3://none/edges/",
        storage={"endpointUrl": "http://127.0.0.1:9", "maxAttempts": 1},
    )
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    code, told = look_pod(tmp_path / "pod", load_manifest(Path(small.manifest)), **keys)
    ending = Ending.model_validate(told)
    assert (code, ending.reason, ending.permanent) == (5, "StoreUnavailable", False)


def test_the_planner_refuses_too_few_edges(small: SmallJob, tmp_path: Path) -> None:
    small.write_manifest(input__edges__0__minEdges=NODES + 1)
    code, told = plan_pod(tmp_path / "pod", load_manifest(Path(small.manifest)))
    ending = Ending.model_validate(told)
    assert (code, ending.reason, ending.permanent) == (INPUT, "InputTooSmall", True)
    assert f"has {NODES} edges" in ending.message
