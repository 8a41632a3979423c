"""How far changes reach, and where following them stops."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from embertide.engine.pipeline import reach as reaches
from embertide.engine.pipeline.reach import Following, Reach, count_reach
from embertide.facts.telemetry.recorder import NullRecorder
from embertide.graph.exchange import Exchange
from embertide.grid import Grid
from embertide.kernels.csr import Csr
from embertide.kernels.some_rows import targets_of
from embertide.program.plans.flow import stale_rows
from embertide.program.plans.plan import Plan
from embertide.program.steps import Aggregate, Linear, Program
from embertide.program.steps.base import Step
from embertide.program.steps.frontier import Changes
from embertide.spec.grid import GridShape
from tests.support.plans import in_slices

NODES, WIDTH, LAYERS, EDGES = 4000, 64, 4, 8


def plan() -> Plan:
    """Layers of a sum and a product each."""
    steps, before = list[Step](), "x"
    for layer in range(LAYERS):
        steps.append(Aggregate(out=f"s{layer}", layer=layer, x=before, norm="in"))
        steps.append(Linear(out=f"h{layer}", layer=layer, x=f"s{layer}", weight="w"))
        before = f"h{layer}"
    steps[-1] = Linear(out="out", layer=LAYERS - 1, x=f"s{LAYERS - 1}", weight="w")
    widths = {"x": WIDTH, **{step.out: WIDTH for step in steps}}
    params = {"w": torch.eye(WIDTH)}
    return in_slices(
        Program(steps=tuple(steps), params=params, widths=widths, layers=LAYERS), GridShape()
    )


def graph() -> Csr:
    g = torch.Generator().manual_seed(1)
    cols = torch.randint(0, NODES, (NODES, EDGES), generator=g).sort(1).values.flatten()
    return Csr(0, torch.arange(NODES + 1) * EDGES, cols.to(torch.int32))


def changed(count: int, new: int = 0) -> Changes:
    """Other in-edges of so many nodes, of which some are new."""
    edges, added = torch.zeros(NODES, dtype=torch.bool), torch.zeros(NODES, dtype=torch.bool)
    edges[:count], added[:new] = True, True
    none = {"": torch.zeros(NODES, dtype=torch.bool)}
    return Changes(new={"": added}, features={"": added}, edges={"": edges}, out=none)


def reach(changes: Changes, following: Following) -> Reach:
    exchange = Exchange(Grid(GridShape.of(1, 1)), torch.device("cpu"), NullRecorder())
    return count_reach(exchange, plan(), changes, {"": graph()}, following)


def expected(changes: Changes) -> tuple[dict[str, torch.Tensor], int]:
    """The rows of each tensor that differ, and the in-edges of those of sums."""
    stale = stale_rows(plan(), changes, lambda _name, rows: targets_of(graph(), rows))
    sums = [f"s{layer}" for layer in range(LAYERS)]
    return stale, sum(int(stale[name].sum()) * EDGES for name in sums)


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
def test_changes_are_followed_to_the_results(tolerance: float) -> None:
    for count in (0, 1, 30):
        changes = changed(count)
        stale, edges = expected(changes)
        answer = reach(changes, Following(tolerance=tolerance))
        assert answer.stale.keys() == stale.keys()
        assert all(torch.equal(answer.stale[name], rows) for name, rows in stale.items())
        assert (answer.rows, answer.edges) == (int(stale["out"].sum()), edges)
        assert (answer.all_rows, answer.all_edges) == (NODES, LAYERS * NODES * EDGES)
        assert not answer.stopped


def test_with_a_tolerance_the_least_is_what_differs_without_moves() -> None:
    exact, least = (reach(changed(30), Following(tolerance=t)) for t in (0.0, 0.01))
    assert least.seconds < exact.seconds
    assert least.full_seconds == exact.full_seconds


def test_following_stops_once_what_was_reached_takes_as_long_as_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    def counted(csr: Csr, rows: torch.Tensor) -> torch.Tensor:
        calls.append(int(rows.sum()))
        return targets_of(csr, rows)

    monkeypatch.setattr(reaches, "targets_of", counted)
    # Reading what was kept takes no time at first, so that only rows that are reached count.
    monkeypatch.setattr(reaches, "_KEPT_READ_BYTES", 1e15)
    few = reach(changed(1), Following(stops=True))
    assert not few.stopped
    assert len(calls) == LAYERS
    monkeypatch.setattr(reaches, "_KEPT_READ_BYTES", 4e8)
    calls.clear()
    many = reach(changed(2000), Following(stops=True))
    assert many.stopped
    assert len(calls) < LAYERS
    assert many.seconds >= many.full_seconds
    assert many.edges <= expected(changed(2000))[1]
    calls.clear()
    assert not reach(changed(2000), Following()).stopped
    assert len(calls) == LAYERS


def test_rows_that_are_kept_have_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaches, "KEPT_BYTES", 1e6)
    whole = LAYERS * NODES * WIDTH * 4 / 1e6
    for count, share in ((0, 0.0), (1, None), (NODES, 1.0)):
        changes = changed(count)
        kept, not_kept = reach(changes, Following(keeps=True)), reach(changes, Following())
        assert kept.full_seconds - not_kept.full_seconds == pytest.approx(whole)
        stale, _ = expected(changes)
        ends = [stale[name] for name in ("h0", "h1", "h2", "out")]
        rows = [len(of) if of.sum() > NODES / 4 else int(of.sum()) for of in ends]
        writes = sum(rows) * WIDTH * 4 / 1e6
        assert kept.seconds - not_kept.seconds == pytest.approx(writes)
        assert share is None or writes == pytest.approx(whole * share)
    # Where nodes are new, rows have other places, and all are written.
    new = changed(1, new=1)
    kept, not_kept = reach(new, Following(keeps=True)), reach(new, Following())
    assert kept.seconds - not_kept.seconds == pytest.approx(whole)


def test_of_tensors_between_layers_the_pages_of_rows_that_are_reached_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reaches, "_KEPT_READ_BYTES", 1.0)
    monkeypatch.setattr(reaches, "likely_seconds", lambda _work, _cores: 0.0)
    row, page = WIDTH * 4, 100 * WIDTH * 4
    monkeypatch.setattr(reaches, "PAGE_BYTES", page)
    for count in (0, 1, NODES):
        changes = changed(count)
        stale, edges = expected(changes)
        own = [int(stale[f"h{layer}"].sum()) for layer in range(LAYERS - 1)]
        read = [min(NODES * row, (rows + edges) * page) for rows in own]
        assert reach(changes, Following()).seconds == sum(read) + NODES * row


def test_with_a_tolerance_each_layer_is_gone_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the least that differs is, needs no other look at the edges."""
    calls: list[int] = []

    def counted(csr: Csr, rows: torch.Tensor) -> torch.Tensor:
        if bool(rows.any()):
            calls.append(int(rows.sum()))
        return targets_of(csr, rows)

    monkeypatch.setattr(reaches, "targets_of", counted)
    features = torch.zeros(NODES, dtype=torch.bool)
    features[:3] = True
    reach(replace(changed(3), features={"": features}), Following(tolerance=0.01))
    assert len(calls) == LAYERS
