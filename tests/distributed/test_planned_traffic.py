"""Every row of a run's traffic, held to its plan: none of one without the other.

The graph is even, so what it decides is close to what is expected of it; what it does not decide
is planned to the byte.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commands import Commands
from tests.support.even_types import write_even_types
from tests.support.tiers import by_turns

pytestmark = pytest.mark.distributed

Row = tuple[str, str, int, str]
"""Axis, primitive, layer and relation."""
Model = tuple[str, ...]
"""Options of ``embertide synth``."""

DECIDED_BY_GRAPH = {
    ("graph", "spmm"): 0.02,
    ("graph", "scalars"): 0.02,
    ("graph", "degrees"): 0.02,
    ("graph", "ids"): 0.02,
    ("world", "ids"): 0.02,
    ("world", "sddmm"): 0.02,
    ("feature", "sddmm"): 0.02,
    ("world", "features"): 0.02,
    ("world", "shuffle"): 0.05,
}
"""How far the bytes may be from what is expected; all other rows have none to spare."""
MOST_MESSAGES = {("world", "features"), ("world", "shuffle")}
"""Of which a batch may have nothing for a peer, so that fewer are sent."""

GCN = ("--conv", "gcn")
SUM_FIRST = ("--conv", "gcn", "--width", "16", "--weights")
TYPES: Model = ()
"""Not made by ``embertide synth``: several node types, every kind of step over edges."""
GAT = ("--conv", "gat", "--heads", "4")
GATV2 = ("--conv", "gatv2", "--heads", "4")
EDGE_GAT = ("--conv", "edge_gat", "--edge-features", "3")
CASES = [
    *[(model, grid, None) for model in (GCN, GAT) for grid in ("2x1", "1x2", "2x2")],
    (SUM_FIRST, "2x2", None),
    *[(GATV2, grid, None) for grid in ("2x1", "2x2")],
    (("--conv", "dotgat"), "1x2", None),
    (EDGE_GAT, "2x2", None),
    (GCN, "2x2", [5, 5, 5]),
    (TYPES, "2x2", None),
    (TYPES, "2x1", [16, 16]),
]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("commands"))


@pytest.fixture(scope="module")
def made(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> dict[Model, Path]:
    """The manifest of a job with an even graph, by model."""
    size = ("--kind", "uniform", "--nodes", "2048", "--hidden", "32", "--embedding", "24")
    found = {}
    for model in dict.fromkeys(model for model, *_ in CASES):
        folder = tmp_path_factory.mktemp("job")
        if model == TYPES:
            found[model] = write_even_types(folder)
            continue
        assert commands.run("synth", str(folder), *size, *model).code == 0
        found[model] = folder / "job.yaml"
    return found


def with_groups(manifest: Path, fanout: list[int] | None, **more: int) -> str:
    """The same job in small groups, with a fanout where one is given."""
    job = yaml.safe_load(manifest.read_text())
    sampled = {"fanout": fanout} if fanout else {}
    job["spec"]["inference"] = {"groupBytes": 16384} | sampled | more
    # The same inputs and model, on another grid, would only be confirmed.
    job["spec"]["refresh"] = {"mode": "full"}
    manifest.write_text(yaml.safe_dump(job))
    return str(manifest)


def row_of(item: dict[str, Any]) -> Row:
    return item["axis"], item["primitive"], item["layer"], item["relation"]


@pytest.mark.parametrize(("case", "in_place"), by_turns(CASES, [False, True]))
def test_a_run_sends_what_is_planned(
    commands: Commands,
    made: dict[Model, Path],
    case: tuple[Model, str, list[int] | None],
    in_place: bool,
) -> None:
    """With rows exchanged as between hosts, or in place, where sums move none."""
    model, grid, fanout = case
    report = run_of(commands, with_groups(made[model], fanout), grid, in_place=in_place)
    assert (sum(item["bytes_read_in_place"] for item in report["traffic"]) > 0) == in_place
    sums = (item["bytes_sent"] for item in report["traffic"] if item["primitive"] == "spmm")
    assert not in_place or not any(sums)
    assert differing(report) == {}


def run_of(commands: Commands, manifest: str, grid: str, *, in_place: bool) -> dict[str, Any]:
    """The report of a run."""
    env = {"EMBERTIDE_IN_PLACE": "1" if in_place else "0"}
    done = commands.run("run", manifest, "--grid", grid, "--json", env=env)
    assert done.code == 0, done.err
    return done.events[-1]


def differing(report: dict[str, Any]) -> dict[Row, tuple[float, ...]]:
    """The rows whose bytes or messages are not those of the plan."""
    workers = math.prod(report["grid"])
    sent = {row_of(item): item for item in report["traffic"] if item["bytes_sent"]}
    # The model's files, whose sizes no plan has, and rows that are computed a second time.
    sent.pop(("world", "model", -1, ""))
    sent.pop(("world", "check", -1, ""))
    planned = {row_of(item): item for item in report["planned_traffic"]}
    assert len(planned) == len(report["planned_traffic"])
    assert planned.keys() == sent.keys()
    wrong = {}
    for row, item in sent.items():
        found = workers * planned[row]["bytes_per_worker"]
        room = DECIDED_BY_GRAPH.get(row[:2], 0.0) * item["bytes_sent"] + workers
        fewer = workers * planned[row]["messages"] - item["messages"]
        # A group more or less of each peer; a mean worker's messages are rounded up.
        least = -workers * (workers - 1) if row[:2] in DECIDED_BY_GRAPH else 0
        most = math.inf if row[:2] in MOST_MESSAGES else workers - 1 - least
        if abs(found - item["bytes_sent"]) >= room or not least <= fewer <= most:
            wrong[row] = item["bytes_sent"], found, item["messages"], fewer
    return wrong


def test_a_plan_says_how_few_messages_there_may_be(
    commands: Commands, made: dict[Model, Path]
) -> None:
    """Between hosts, where one message may have up to four groups."""
    plans = []
    for most in (1, 4):
        manifest = with_groups(made[GCN], None, groupsPerMessage=most)
        done = commands.run("plan", manifest, "--grid", "4x1", "--json")
        assert done.code == 0, done.err
        plans.append({row_of(item): item for item in done.events[-1]["traffic"]})
    alone, merged = plans
    # Both layers sum; before the second all tell what 1, 2 and 4 groups in a message took.
    told = merged.pop(("graph", "tuning", 1, ""))
    assert (told["bytes_per_worker"], told["messages"]) == (3 * (8 + 16 * 3), 3 * 2)
    assert merged.keys() == alone.keys()
    for row, item in alone.items():
        fewest = None
        if row[1] == "spmm":
            fewest = 3 * math.ceil(item["messages"] / 3 / 4)
            assert fewest < item["messages"]
        assert merged[row] == {**item, "fewest_messages": fewest}
