"""Every case gives, on every grid and in every mode, the rows of a whole run.

The first tier runs the cover; the second each case once, on grids by turns, and the cover in every
mode; the third all cases on all grids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.program.plans.flow import why_whole
from embertide.program.plans.plan import Target
from embertide.program.steps.base import KINDS
from embertide.program.steps.shapes import Shapes
from embertide.spec.grid import GridShape
from tests.support.catalogue import catalogue
from tests.support.modes import Mode
from tests.support.plans import as_given
from tests.support.same import cases_of, expected_rows, same
from tests.support.world import NODES

pytestmark = pytest.mark.distributed

GRIDS = ((1, 1), (2, 1), (1, 2), (2, 2))
OTHERS = ((3, 2), (3, 1), (1, 3), (4, 1), (1, 4))
PARTS = 10
"""Tests of all cases on a grid: as many as leave each far from the bound of a task of ranks."""

EXACT = Mode(name="exact")
ROUNDED = Mode(name="bfloat16", rows="bfloat16")
SAMPLED = Mode(name="sampled", fanout=3)


RESUMED = Mode(name="resumed", start="resume")
TARGETS = Mode(name="targets", start="targets")
NEAR_TARGETS = replace(TARGETS, name="targets-in-place", one_host=True)
REFRESHED = Mode(name="refreshed", start="refresh", one_host=True)
DISK, HOST = (Mode(name=f"in-{at}", storage=at, panel=5) for at in ("disk", "host"))
FEW = (
    (RESUMED, (2, 2)),
    (replace(RESUMED, name="resumed-bfloat16", rows="bfloat16"), (2, 1)),
    (NEAR_TARGETS, (2, 2)),
    (TARGETS, (2, 1)),
    (REFRESHED, (1, 2)),
    (replace(REFRESHED, name="refreshed-bfloat16", rows="bfloat16"), (1, 1)),
)
"""Starts, types of rows and grids, each two of which meet once, with an eighth of the cover."""
STORED: tuple[tuple[Mode, tuple[int, int]], ...] = (
    (DISK, (1, 1)),
    (replace(DISK, panel=16), (2, 1)),
    (replace(DISK, panel=4), (1, 2)),
    (replace(DISK, panel=3), (2, 2)),
    (replace(DISK, panel=4), (3, 1)),
    (replace(HOST, panel=4), (3, 1)),
    (HOST, (1, 1)),
    (replace(HOST, late=("to host",)), (2, 1)),
    (replace(HOST, panel=3, late=("to device",)), (1, 2)),
    (replace(HOST, panel=3), (2, 2)),
)
"""Columns of a panel are a multiple of what kernels take at a time, or not. Only rows in float32 of
whole runs can be elsewhere than in memory."""
KEPT = (((3, 1), (1, 3)), ((1, 1), (2, 1)), ((4, 1), (2, 2)), ((2, 2), (3, 2)))
"""The grid that keeps layers, and the one that goes on after them."""

FIRST, SECOND, THIRD = pytest.mark.tier(1), pytest.mark.tier(2), pytest.mark.tier(3)


def _runs() -> Iterator[Any]:
    """Mode, cases, grid, with their tier."""
    every = (*GRIDS, *OTHERS)
    yield from (_run(EXACT, "cover", grid, FIRST) for grid in GRIDS)
    yield from (_run(EXACT, "cover of DGL", grid, SECOND, pytest.mark.dgl) for grid in GRIDS)
    for turn, grid in enumerate(every, 1):
        yield _run(EXACT, f"models {turn}/{len(every)}", grid, SECOND)
    yield _run(EXACT, "types", (3, 1), SECOND)
    yield from (_run(ROUNDED, "kinds", grid, SECOND) for grid in GRIDS)
    yield from (_run(ROUNDED, "types", grid, SECOND) for grid in ((2, 1), (2, 2)))
    for turn, grid in enumerate(((1, 1), (1, 2), (3, 1)), 1):
        yield _run(ROUNDED, f"types {turn}/3", grid, SECOND)
    yield from (_run(SAMPLED, "kinds", grid, SECOND) for grid in ((1, 1), (2, 1)))
    yield from _starts(every)
    yield from _stored()
    for grid in every:
        for part in range(PARTS):
            yield _run(EXACT, f"models {part + 1}/{PARTS}", grid, THIRD)
    yield from (_run(EXACT, "types", grid, THIRD) for grid in GRIDS)
    yield from (_run(ROUNDED, "types", grid, THIRD) for grid in ((1, 1), (1, 2), (3, 1)))


def _starts(every: tuple[tuple[int, int], ...]) -> Iterator[Any]:
    """Runs that start from what others have computed, or compute some rows."""
    grids = ((2, 1), (1, 2), (2, 2), (3, 1))
    for turn, (mode, grid) in enumerate(FEW, 1):
        yield _run(mode, f"cover {turn}/16", grid, FIRST)
    for mode in (TARGETS, REFRESHED):
        yield from (_run(mode, f"cover {part}/2", (1, 1), SECOND) for part in (1, 2))
    for turn, grid in enumerate(grids, 1):
        yield _run(RESUMED, f"cover {turn}/4", grid, SECOND)
        yield _run(NEAR_TARGETS, f"cover {turn + 4}/8", grid, SECOND)
        yield _run(REFRESHED, f"cover {9 - turn}/8", grid, SECOND)
    yield _run(TARGETS, "cover 1/8", (2, 2), SECOND)
    for turn, (mode, grid) in enumerate(STORED, 1):
        resumed = replace(mode, name=f"resumed-{mode.name}", start="resume")
        yield _run(resumed, f"cover {turn}/10", grid, SECOND)
    on_disk = replace(TARGETS, name="targets-in-disk", storage="disk")
    for turn, (mode, grid) in enumerate((
        (replace(on_disk, graph=True), (1, 1)),
        (replace(on_disk, graph=True, one_host=True), (2, 1)),
        (replace(on_disk, graph=True), (1, 2)),
        (replace(on_disk, graph=True, panel=4), (2, 2)),
        (replace(on_disk, name="targets-in-host", storage="host"), (2, 1)),
    ), 1):  # fmt: skip
        yield _run(mode, f"cover {turn}/5", grid, SECOND)
    yield _run(replace(on_disk, graph=True, one_host=True), "pyg example gine, step edge features"
               " single mean, types made carrying", (2, 1), SECOND)  # fmt: skip
    nightly = replace(REFRESHED, name="refreshed-in-disk", storage="disk")
    for turn, (mode, grid) in enumerate((
        (nightly, (1, 1)),
        (replace(nightly, panel=16), (2, 1)),
        (replace(nightly, panel=4), (1, 2)),
        (replace(nightly, panel=3), (2, 2)),
        (replace(nightly, name="refreshed-in-host", storage="host"), (2, 1)),
    ), 1):  # fmt: skip
        yield _run(mode, f"cover {turn}/5", grid, SECOND)
    yield _run(replace(on_disk, name="targets-without-room", parts_bytes=0), "step propagate"
               " features, pyg example sage", (2, 1), SECOND)  # fmt: skip
    for turn, (before, after) in enumerate(KEPT, 1):
        yield _run(_kept_on(before), f"cover {turn + 4}/8", after, SECOND)
        for part in range(1, PARTS + 1):
            yield _run(_kept_on(before), f"models {part}/{PARTS}", after, THIRD)
    for grid in every:
        for part in range(1, PARTS + 1):
            for mode in (RESUMED, TARGETS, REFRESHED):
                yield _run(mode, f"models {part}/{PARTS}", grid, THIRD)
    yield from (_run(RESUMED, "types", grid, THIRD) for grid in (*GRIDS, (3, 1)))
    yield from (_run(TARGETS, "types", grid, THIRD) for grid in (*GRIDS, (3, 1)))


def _kept_on(grid: tuple[int, int]) -> Mode:
    return replace(RESUMED, name=f"kept-on-{grid[0]}x{grid[1]}-resumed", kept_on=grid)


def _stored() -> Iterator[Any]:
    """Runs whose tensors are on disk, or in host memory beside a device, and the graph."""
    for turn, (mode, grid) in enumerate(STORED):
        yield _run(mode, f"cover {turn % 5 + 1}/5", grid, SECOND)
        for part in range(1, PARTS + 1):
            yield _run(mode, f"models {part}/{PARTS}", grid, THIRD)
        if mode.storage == "disk":
            yield _run(mode, "types", grid, THIRD)
    yield _run(DISK, "cover of DGL", (2, 1), SECOND, pytest.mark.dgl)
    yield _run(HOST, "cover of DGL", (1, 1), THIRD, pytest.mark.dgl)
    yield _run(replace(DISK, name="sampled-on-disk", fanout=3), "kinds", (2, 2), SECOND)
    for grid in ((1, 1), (2, 1)):
        # With slices torch rounds a row of its heads' mean by where it stands.
        yield _run(replace(DISK, name="sampled-on-disk", fanout=3), "pyg GATv2", grid, SECOND)
    for grid in GRIDS:
        yield _run(replace(DISK, name="sampled-on-disk", fanout=3), SAMPLED_ON_DISK, grid, SECOND)
        yield _run(replace(DISK, name="edges-on-disk", panel=4), EDGES_ON_DISK, grid, SECOND)
    yield _run(replace(DISK, name="placed-on-disk", placed=True), GCN, (1, 1), SECOND)
    changed = replace(DISK, name="changed-edges-on-disk", edges=CHANGED, one_host=True)
    of_edges = "types made relational, types made looped, types made additive, types made read, "
    of_edges += "types made carrying"
    yield from (_run(changed, of_edges, grid, SECOND) for grid in ((2, 1), (2, 2)))


SAMPLED_ON_DISK = (
    "pyg gatv2-heads, pyg GAT, pyg example fa, pyg example gine, step edge features single mean"
    ", pyg example transformer, step pair attention in parts"
    ", step propagate features, step degree out_weight keep"
)
"""Sums, attention and messages, degrees of both ends, features of edges."""
EDGES_ON_DISK = (
    "pyg example fa, pyg example gine, step edge features single mean, types made carrying"
    ", pyg gatv2-heads, pyg example agnn, step pair attention in parts, types made pairs"
    ", types made attending"
)
"""Messages of edges, with their features or without, and scores of pairs."""
GCN = "pyg example gcn, pyg GCN-layer_norm, pyg GCN-size, pyg gcn-narrow-improved"
CHANGED = {
    "buys": {"duplicates": "remove"},
    "follows": {"selfLoops": "addToAll"},
    "has": {"duplicates": "remove"},
}
"""What a job states of its edges, of which some go or take the place of others."""


def _run(mode: Mode, group: str, grid: tuple[int, int], *marks: pytest.MarkDecorator) -> Any:
    label = f"{mode.name}-{group}-{grid[0]}x{grid[1]}".replace(" ", "-")
    return pytest.param(mode, group, grid, marks=marks, id=label)


@pytest.mark.parametrize(("mode", "group", "grid"), list(_runs()))
def test_cases_have_the_rows_of_a_whole_run(
    mode: Mode, group: str, grid: tuple[int, int], tmp_path: Path
) -> None:
    facts = [answer.facts for answer in same(cases_of(group), grid, mode, tmp_path).values()]
    if mode.start == "refresh" and len(facts) > 20:
        # Sums over one layer go over few of the edges.
        assert min(of["share of the edges"] for of in facts if of["alone"]) < 0.15
    elif mode.storage == "disk" and mode.start == "whole":
        # The graph is there, too, in many parts.
        assert max(of["parts"] for of in facts) > 3
    elif mode.start == "targets" and grid == (1, 1):
        assert sum(of["edges"] for of in facts) < 0.6 * sum(of["all edges"] for of in facts)


@pytest.mark.dgl
def test_samples_of_rows_that_did_not_change_stay(tmp_path: Path) -> None:
    cases = cases_of("pyg example sage, pyg example gcn, pyg gat-heads, dgl gcn-both-wide")
    same(cases, (2, 1), replace(TARGETS, fanout=3), tmp_path)
    answers = same(cases, (2, 1), replace(REFRESHED, fanout=3), tmp_path)
    assert answers["dgl gcn-both-wide"].why.endswith("reads out-degrees of samples")
    assert answers["pyg example sage"].facts["alone"]


@pytest.mark.dgl
def test_rounded_rows_are_computed_alone(tmp_path: Path) -> None:
    cases = cases_of("pyg example sage, pyg example gcn, pyg gat-heads, pyg gin-mlp, dgl jk-cat")
    answers = same(cases, (2, 1), replace(REFRESHED, rows="bfloat16"), tmp_path)
    assert all(answer.facts["alone"] for answer in answers.values())


NARROWED = (
    "pyg GCN-layer_norm, pyg sage-max-wide-normalize, step propagate with a teleport"
    ", dgl gat-weighted"
)
"""Models whose operations take panels or blocks, none of them whole tensors."""


@pytest.mark.dgl
def test_panels_that_a_gpu_has_no_memory_for_are_cut(tmp_path: Path) -> None:
    few = replace(HOST, panel=12, values=7 * NODES)
    answers = same(cases_of(NARROWED), (1, 1), few, tmp_path)
    warned = {name: answer.warned[0] for name, answer in answers.items() if answer.warned}
    assert len(warned) > 2
    assert warned["pyg GCN-layer_norm"].startswith(
        "the GPU had no memory for 8 columns of a tensor at a time: layers go on with 4 (memory"
    )


def test_repeated_sums_that_are_begun_again_agree_with_their_check(tmp_path: Path) -> None:
    # There is no memory for the second sum of a panel whose first sum was compared.
    names = "step propagate with a teleport, step propagate the sum of hops"
    answers = same(cases_of(names), (1, 1), replace(HOST, panel=12, summed=4), tmp_path)
    assert all(answer.warned for answer in answers.values())


def test_panels_of_several_workers_are_not_cut(tmp_path: Path) -> None:
    message = (
        "the GPU has no memory for [0-9]+ columns of a tensor at a time, which workers that"
        " exchange rows can't change; give workers a smaller --gpu-memory"
    )
    few = replace(HOST, panel=12, values=2 * NODES)
    with pytest.raises(AssertionError, match=message):
        same(cases_of("pyg GCN-layer_norm"), (2, 1), few, tmp_path)


def test_statistics_over_all_nodes_take_all_rows(tmp_path: Path) -> None:
    (answer,) = same(cases_of("pyg GCN-pair_norm"), (1, 1), REFRESHED, tmp_path).values()
    assert answer.why == "0.graph_norm (graph_norm, layer 1) needs a statistic over all nodes"


@pytest.mark.dgl
def test_rows_of_many_models_can_be_computed_alone() -> None:
    """The others need all rows, and say why."""
    here = Target(grid=GridShape())
    plans = [as_given(case.program, here) for case in catalogue().values()]
    assert sum(not why_whole(plan, sampled=False) for plan in plans) >= 90


@pytest.mark.tier(1)
def test_cases_can_tell_models_apart() -> None:
    """No two models agree by accident (no weights that are zero, no graph without effect)."""
    for name, case in catalogue().items():
        (rows,) = expected_rows(name, case).values()
        assert np.abs(rows.flatten()[:50]).max() > 1e-3, name


@pytest.mark.dgl  # No other model has steps of some kinds.
def test_every_kind_of_step_is_tried_and_knows_its_columns() -> None:
    tried = set()
    for name, case in catalogue().items():
        program = case.program
        for step in program.steps:
            tried.add(step.kind_name)
            width = step.width(Shapes(program.widths, program.params))
            assert width == program.widths[step.out], f"{name}: {step}"
    assert tried == set(KINDS)
