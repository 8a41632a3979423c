"""What a plan says a run needs: memory with imports, seconds, grids, an output that is writable."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from embertide.cli.tables import print_estimate, print_report
from embertide.engine.planning.duration import basis, seconds_range, start_range, work_of
from embertide.engine.planning.estimate import grids_to_compare
from embertide.engine.planning.sizing import (
    BESIDE_BYTES,
    IMPORTS_BYTES,
    SHARED_IMPORTS_BYTES,
    Machine,
    container_bytes,
    machine_bytes,
    machine_problem,
    worker_bytes,
)
from embertide.engine.stages.report import beyond_plan
from embertide.errors import EmbertideError
from embertide.facts.telemetry.report import PlannedTraffic, RankMemory, RelationCount, TypeCount
from embertide.footprint import GraphSize
from embertide.io.storage.opening import open_storage
from embertide.launch.output import output_problem
from embertide.program.steps import Affine, Aggregate, Attend, Linear, Program
from embertide.spec.grid import GridShape
from tests.support.cli import ESTIMATE, LARGE_ESTIMATE, LARGE_REPORT, Engine

Cli = Callable[..., tuple[int, str, str]]
GIB = 1 << 30
TWO_CORES = Machine(cores=2, memory_bytes=24 * GIB)


# Memory


def test_memory_counts_imports_once_a_worker_and_the_rest_once_a_machine() -> None:
    assert worker_bytes(GIB) == GIB + IMPORTS_BYTES
    own = GIB + IMPORTS_BYTES - SHARED_IMPORTS_BYTES
    assert machine_bytes(GIB, 4) == 4 * own + BESIDE_BYTES


@pytest.mark.parametrize("peak", [0, 1, GIB, 77 * GIB + 3])
def test_a_container_has_a_quarter_more_in_whole_steps(peak: int) -> None:
    asked = container_bytes(peak)
    needed = 1.25 * machine_bytes(peak, 1)
    assert asked % (64 << 20) == 0
    assert needed - 1 <= asked < needed + (64 << 20)


@pytest.mark.parametrize(
    ("grid", "peak", "says"),
    [
        ((16, 1), 0, None),
        ((17, 1), 0, "17x1 has 17 workers, but this machine has 2 cores"),
        ((50, 2), 0, "use at most 16 workers here, 2 or fewer to be quick"),
        ((2, 1), 11 * GIB, None),
        ((2, 1), 12 * GIB, "grid 2x1 needs about 24.8 GiB on one machine"),
        (
            (1, 1),
            24 * GIB,
            "(1 worker of 24.3 GiB with imports, of which they share 0.1 GiB, and 0.5 GiB beside",
        ),
    ],
)
def test_a_machine_that_is_too_small(grid: tuple[int, int], peak: int, says: str | None) -> None:
    problem = machine_problem(GridShape.of(*grid), peak, TWO_CORES)
    if says is None:
        assert problem is None
    else:
        assert problem is not None
        assert says in problem
        assert "\n" not in problem


# Seconds


def program(conv: type[Aggregate | Attend]) -> Program:
    attention = {"source": "s", "target": "s", "heads": 1} if conv is Attend else {}
    steps = (
        Linear(out="a", layer=0, x="x", weight="w"),
        Affine(out="s", layer=0, x="a"),
        conv(out="out", layer=0, x="a", **attention),
    )
    widths = {"x": 128, "a": 64, "out": 64}
    return Program(steps=steps, params={"w": torch.zeros(64, 128)}, widths=widths, layers=1)


SIZE = GraphSize(
    nodes={"": 1_000_000}, edges={"": 20_000_000}, grid=GridShape(), group_bytes=1 << 24, depth=2
)
MOVED = {"written_bytes": 256e6, "exchanged_bytes": 0.0}


def test_work_is_counted_from_the_program() -> None:
    work = work_of(program(Aggregate), SIZE, None, **MOVED)
    assert (work.edges, work.values) == (20e6, 20e6 * 64)
    assert (work.flops, work.read_bytes) == (2e6 * 128 * 64, 4e6 * 128)
    assert work_of(program(Attend), SIZE, None, **MOVED).values == 2 * work.values
    assert work_of(program(Aggregate), SIZE, [5], **MOVED).values == 5e6 * 64
    assert work_of(program(Aggregate), SIZE, [100], **MOVED).values == work.values


def test_the_range_is_whole_seconds_from_half_to_double() -> None:
    work = work_of(program(Aggregate), SIZE, None, **MOVED)
    low, high = seconds_range(work, 2)
    # (2.22 + 0.37 + 0.27 + 2.05 + 1.02) s of one core.
    assert (low, high) == (1.0, 6.0)
    assert seconds_range(replace(work, exchanged_bytes=100e9), 2)[0] > 50
    assert seconds_range(work, 200) == (0.0, 1.0)


def test_the_start_is_what_was_measured_here_or_an_idle_machines() -> None:
    assert start_range(None) == (2.0, 8.0)
    assert start_range(10.0) == (7.0, 15.0)


def test_the_measured_run_is_within_its_range() -> None:
    """A GCN of three layers on 1x1 took 9.0 s on the two cores that the constants are of, 4 of them
    to start."""
    layers = 3
    one = work_of(program(Aggregate), SIZE, None, **MOVED)
    work = replace(
        one,
        edges=20_971_520,
        values=layers * 20_971_520 * 128.0,
        flops=layers * 2.0 * 1_048_576 * 128 * 128,
        written_bytes=4.0 * 1_048_576 * 128,
    )
    low, high = seconds_range(work, 2)
    assert low < 5.0 < high


def test_the_basis_says_what_is_assumed() -> None:
    text = basis(2, None)
    assert "4 s to start on a machine that does nothing else" in text
    assert "as long as it took here just now (12.5 s)" in basis(2, 12.5)
    assert "each of 2 cores 9 M edges/s" in text
    assert "half to double" in text


# Grids


def names(grids: list[GridShape]) -> list[str]:
    return [str(grid) for grid in grids]


def test_grids_that_fit_and_the_chosen_one() -> None:
    small = ["1x1", "2x1", "1x2", "4x1", "2x2", "8x1", "4x2"]
    assert names(grids_to_compare(GridShape.of(2, 1), 1000, {"x": 64, "h": 128})) == small
    assert names(grids_to_compare(GridShape.of(3, 5), 1000, {"x": 64})) == [*small, "3x5"]
    assert names(grids_to_compare(GridShape(), 3, {"x": 64})) == ["1x1", "2x1", "1x2"]
    assert names(grids_to_compare(GridShape(), 1000, {"x": 1})) == ["1x1", "2x1", "4x1", "8x1"]


# The output


def test_looking_at_an_output_leaves_nothing(tmp_path: Path) -> None:
    assert output_problem(open_storage(), f"file://{tmp_path}/new/deep/out") is None
    assert list(tmp_path.iterdir()) == []
    kept = tmp_path / "out"
    kept.mkdir()
    assert output_problem(open_storage(), f"file://{kept}/") is None
    assert list(tmp_path.rglob("*")) == [kept]


def test_an_output_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    problem = output_problem(open_storage(), f"file://{tmp_path}/out")
    assert isinstance(problem, EmbertideError)
    assert f"{tmp_path}/out" in str(problem)
    assert (tmp_path / "out").read_text() == "mine"


def test_plan_shows_all_and_then_that_the_output_cannot_be_written(
    cli: Cli, engine: Engine, job: str
) -> None:
    Path(job).with_name("out").write_text("mine")
    code, out, err = cli("plan", job)
    assert code in (5, 6)
    assert "10 nodes, 20 edges" in out
    assert "The output cannot be written." in out
    assert err.startswith("embertide: error: file://")
    again, out, _ = cli("plan", job, "--json")
    shown, error = map(json.loads, out.splitlines())
    assert again == code == error["exit_code"]
    assert shown["output_problem"] == error["message"] != ""


def test_plan_leaves_nothing(cli: Cli, engine: Engine, job: str) -> None:
    before = list(Path(job).parent.iterdir())
    assert cli("plan", job)[0] == 0
    assert list(Path(job).parent.iterdir()) == before


def test_a_plan_has_a_line_for_each_node_type_and_relation() -> None:
    types = [TypeCount("user", 61, 7, 0), TypeCount("item", 40, 0, 6)]
    relations = [RelationCount("user:buys:item", 1500, exact=False)]
    traffic = [PlannedTraffic("graph", "spmm", 0, 8, 1, "user:buys:item")]
    shown = io.StringIO()
    named = replace(ESTIMATE, types=types, relations=relations, traffic=traffic)
    print_estimate(Console(file=shown, width=100), named, all_files=False)
    lines = [line.split() for line in shown.getvalue().splitlines()]
    for line in (
        ["user", "61", "7", "-"],
        ["item", "40", "-", "6"],
        ["user", "buys", "item", "about", "1,500"],
        ["graph", "spmm", "0", "user:buys:item", "8", "B", "1"],
    ):
        assert line in lines


def test_needs_are_in_the_json() -> None:
    shown = json.loads(json.dumps(LARGE_ESTIMATE.to_json()))
    chosen = [needs for needs in shown["grids"] if needs["chosen"]]
    assert [needs["grid"] for needs in chosen] == [[8, 2]]
    assert chosen[0]["container_bytes"] == LARGE_ESTIMATE.grids[-1].container_bytes
    assert shown["seconds"] == [1234.0, 5678.0]
    assert LARGE_ESTIMATE.needs is LARGE_ESTIMATE.grids[-1]
    assert ESTIMATE.needs is None


def test_several_relations_from_one_type_share_their_sources() -> None:
    """Sizes of a relation are of its own ends; those of several are of the union of their edges."""
    sizes = GraphSize(
        nodes={"user": 1000, "item": 50},
        edges={"user:buys:item": 4000, "user:likes:user": 3000},
        grid=GridShape.of(2, 1),
        group_bytes=1 << 20,
        depth=1,
    )
    buys, likes = sizes.of_relation("user:buys:item"), sizes.of_relation("user:likes:user")
    assert (buys.nodes, buys.columns, buys.edges) == (50, 1000, 4000)
    both = sizes.of_relations(["user:buys:item", "user:likes:user", "user:buys:item"])
    assert both.edges == 7000
    assert max(buys.unique(), likes.unique()) < both.unique() < buys.unique() + likes.unique()
    assert sizes.of_relation("user:buys:item", 5).edges == 250
    assert sizes.of_relations(["user:buys:item", "user:likes:user"], 5).edges == 3250


# What a run took, beside its plan


def test_memory_clearly_beyond_its_plan_is_a_warning_that_names_the_fullest_worker() -> None:
    imports = 320 << 20
    within = RankMemory(0, imports, imports + (125 << 20), 100 << 20)
    beyond = RankMemory(2, imports, imports + (174 << 20), 100 << 20)
    assert beyond_plan([within, within]) == []
    (warning,) = beyond_plan([within, beyond])
    assert warning.startswith("1 of 2 workers took more memory than planned: worker 2 took 174.0")
    assert "174% of the 100.0 MiB" in warning


def test_without_a_plan_nothing_is_beyond_it() -> None:
    assert beyond_plan([RankMemory(0, 0, 1 << 30, 0)]) == []


def test_the_result_names_the_start_and_the_work() -> None:
    console = Console(file=io.StringIO(), width=200)
    print_report(console, replace(LARGE_REPORT, start_seconds=7.4, total_seconds=0.3))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "grid in 0.3s, after 7.4s to start" in text
