"""Progress within a layer, and cheaply: whatever a step over edges takes, it is seen to go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from embertide.facts.telemetry.progress import Progress
from embertide.graph.exchange import Exchange
from embertide.io.storage.opening import open_storage
from embertide.kernels import native
from embertide.kernels.threads import work_done
from embertide.launch.pulse import Pulse
from embertide.launch.run_folder import repeating
from embertide.launch.worker import _counts
from embertide.program.steps import Aggregate, Attend, HeadDot, Linear, PairAttend, Program, Step
from tests.support.ranks import on_grid
from tests.support.tiers import by_turns
from tests.support.world import Graph, Rank, make_features, make_job

pytestmark = pytest.mark.distributed

# So many edges that a busy machine, too, looks several times while a layer goes over them.
NODES, EDGES, WIDTH = 4096, 1 << 22, 256


def program(*steps: Step) -> Program:
    params = {"w": torch.randn(WIDTH, WIDTH) / WIDTH, "v": torch.randn(4, WIDTH // 4)}
    widths = {"x": WIDTH, **{step.out: WIDTH for step in steps}}
    widths |= {step.out: 4 for step in steps if isinstance(step, HeadDot)}
    last = steps[-1]
    return Program(
        steps=steps, params=params, widths=widths, layers=last.layer + 1, results={"": last.out}
    )


PROGRAMS = {
    "sums": program(
        Aggregate(out="a", layer=0, x="x"),
        Aggregate(out="b", layer=1, x="a"),
    ),
    "a product behind the sum": program(
        Aggregate(out="a", layer=0, x="x"),
        Linear(out="b", layer=0, x="a", weight="w"),
        Aggregate(out="c", layer=1, x="b"),
        Linear(out="d", layer=1, x="c", weight="w"),
    ),
    "attention": program(
        HeadDot(out="s", layer=0, x="x", vector="v", heads=4),
        Attend(out="a", layer=0, x="x", source="s", target="s", heads=4, negative_slope=0.2),
        Aggregate(out="b", layer=1, x="a"),
    ),
    "pairs": program(
        Aggregate(out="a", layer=0, x="x"),
        PairAttend(out="b", layer=1, x="a", key="a", query="a", kind="dot", heads=4, scale=0.1),
    ),
}


def make_graph() -> Graph:
    g = np.random.default_rng(1)
    src, dst = g.integers(0, NODES, EDGES), g.integers(0, NODES, EDGES)
    return Graph(src, dst, None, NODES)


def watch(exchange: Exchange, graph: Graph, model: Program) -> list[Progress]:
    """What this rank reports of the layers, watched as often as can be."""
    seen: list[Progress] = []
    rank = Rank(exchange, graph, make_job(group_bytes=1 << 18))
    count = partial(_counts, exchange.recorder, rank.ctx.work, open_storage(None))  # type: ignore[arg-type]
    pulse = Pulse(seen.append, count)
    rank.ctx = replace(rank.ctx, report=pulse, ahead=pulse.ahead)
    with repeating(pulse.beat, 0.002):
        rank.embed(model, make_features(WIDTH, NODES))
    # What comes before the layers belongs to the stage before them.
    return [event for event in seen if event.stage == "infer"]


@pytest.mark.parametrize(("name", "grid"), by_turns(list(PROGRAMS), [(2, 2), (1, 1)]))
def test_a_layer_is_seen_to_go_on(grid: tuple[int, int], name: str) -> None:
    attempts = 3
    for left in reversed(range(attempts)):
        by_rank = on_grid(*grid, watch, make_graph(), PROGRAMS[name])
        for events in by_rank:
            for values in ([e.steps for e in events], [e.fraction for e in events]):
                assert values == sorted(values)
            assert events[-1].fraction == 1.0
        looks = [_looks_within(events, layer) for events in by_rank for layer in (1, 2)]
        if min(looks) >= 5:
            return
        # A busy machine may keep the one who looks from it for as long as a layer takes.
        assert left, looks


def _looks_within(events: list[Progress], layer: int) -> int:
    """How often a layer was seen further on, by its share and by what was done."""
    within = [event for event in events if event.layer == layer]
    assert all((layer - 1) / 2 <= event.fraction <= 1.0 for event in within)
    return min(len({e.fraction for e in within}), len({e.steps for e in within}))


@pytest.mark.skipif(native.lib is None, reason=native.describe())
def test_kernels_tell_how_far_they_are() -> None:
    """Tasks and edges are there before the call is over, and are exact at its end."""
    graph = make_graph()
    before = work_done()[1]
    events = on_grid(1, 1, watch, graph, PROGRAMS["sums"])[0]
    assert work_done()[1] == before, "of this process alone"
    # A fraction of an edge's share: within a call, not between two.
    inner = {e.fraction for e in events if e.fraction not in (0.0, 0.5, 1.0)}
    assert len(inner) >= 10


def test_counting_costs_next_to_nothing() -> None:
    """What a group adds, and what looking adds four times a second."""
    from embertide.facts.telemetry.recorder import CountingRecorder, Label
    from embertide.facts.telemetry.transfers import Work

    recorder, label = CountingRecorder(), Label("graph", "spmm", 0)
    recorder.received(label, 1)

    def group() -> None:
        recorder.reduced(1)

    assert _best_seconds(group, 10_000) < 20e-6
    pulse = Pulse(lambda _event: None, partial(_counts, recorder, Work(), open_storage(None)))
    assert _best_seconds(pulse.beat, 1_000) < 1e-3


def _best_seconds(act: Callable[[], None], times: int) -> float:
    """Of one call, in the best of a few rounds; what other processes take does not count."""
    rounds = []
    for _ in range(5):
        begin = time.thread_time()
        for _ in range(times):
            act()
        rounds.append((time.thread_time() - begin) / times)
    return min(rounds)
