"""How wrong the results of a run with a tolerance are: some of their rows, from the features on.

Rows are drawn among those that changes may reach, since no other row has another error than
before. They are computed over all rows that they are made of, with the bits of a run of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from embertide.kernels.torch_threads import on_one_thread
from embertide.plans.plan import Plan
from embertide.plans.wanted import Rows
from embertide.selfcheck.draw import draw
from embertide.stages.infer.doubt import Doubt
from embertide.stages.infer.excerpt_run import ExcerptRun
from embertide.stages.infer.moved import relative_errors
from embertide.stages.infer.taking_over import Refreshing
from embertide.steps.execution import Execution
from embertide.telemetry.refresh import RefreshFacts

MEASURED_ROWS = (256, 64, 16, 4, 1)
"""Rows of each result: the first number whose edges are few enough."""
MOST_EDGES = 0.1
"""The share of the edges of a run of all rows that measuring may go over,"""
MOST_TIMES = 1.5
"""or how many times the edges that the fewest rows need, if that is more."""
TOO_WRONG = (
    "of {rows} rows of the results that were computed from the features, one is wrong by"
    " {error:.2g} of its norm, more than {limit:g} (refresh.maxError)"
)
NOT_FINITE = (
    "of {rows} rows of the results that were computed from the features, one is not finite, so that"
    " its error cannot be measured (refresh.tolerance)"
)


def measure(
    runs: ExcerptRun,
    plan: Plan,
    whole: Execution,
    results: Mapping[str, torch.Tensor],
    refreshing: Refreshing,
    facts: RefreshFacts,
) -> None:
    """Measure the largest relative error of some rows. Collective: every rank must call.

    Args:
        runs: where the graphs of all operations are open.
        plan: of excerpts.
        results: key -> our rows of it.

    Raises:
        Doubt: it is larger than it may be.
    """
    program = plan.program
    with on_one_thread():
        drawn = _drawn(runs, plan, refreshing)
    if not drawn:
        facts.measured, facts.error = 0, 0.0
        return
    excerpt, execution = runs.run(plan, 0, len(plan.ops), drawn, counted=False)
    ours = [0.0]
    for key, name in program.results.items():
        if name not in drawn:
            continue
        of_type = program.types[name]
        rows = excerpt.of_ours(whole, of_type, "rows")
        first, last = whole.ranges[of_type].worker(whole.grid.rank)
        some = drawn[name][first:last][rows]
        exact = execution.tensors.converted(name, "rows", execution.channel(0)).data[some]
        ours += relative_errors(exact, results[key][rows[some]]).tolist()
    facts.measured = sum(int(rows.sum()) for rows in drawn.values())
    facts.error = max(whole.exchange.all_objects(max(ours)))
    if math.isinf(facts.error):
        raise Doubt(NOT_FINITE.format(rows=facts.measured))
    if not facts.error <= refreshing.max_error:
        raise Doubt(
            TOO_WRONG.format(rows=facts.measured, error=facts.error, limit=refreshing.max_error)
        )


def _drawn(runs: ExcerptRun, plan: Plan, refreshing: Refreshing) -> dict[str, Rows]:
    """Tensor -> [N] bool, the rows of the results to measure; {}: changes reach none."""
    names = dict.fromkeys(plan.program.results.values())
    reached = {name: refreshing.reached[name] for name in names}
    reached = {name: rows for name, rows in reached.items() if bool(rows.any())}
    if not reached:
        return {}
    samples = [
        {name: _some(rows, count, refreshing.seed) for name, rows in reached.items()}
        for count in MEASURED_ROWS
    ]
    edges = [_edges(runs, plan, some) for some in samples]
    # Where few rows are made of most of the graph, many are made of little more.
    limit = max(MOST_EDGES * refreshing.all_edges, MOST_TIMES * edges[-1])
    return next(some for some, count in zip(samples, edges, strict=True) if count <= limit)


def _edges(runs: ExcerptRun, plan: Plan, rows: Mapping[str, Rows]) -> int:
    """Edges that some rows of the results need. Collective: every rank must call."""
    wanted, _ = runs.wanted(plan, plan.ops, rows)
    return sum(runs.count_edges(wanted).values())


def _some(rows: Rows, count: int, seed: int) -> Rows:
    """Some of the rows that are set."""
    places = rows.nonzero().squeeze(1)
    drawn = draw(min(count, len(places)), len(places), seed, 0)
    some = torch.zeros_like(rows)
    some[places[torch.from_numpy(drawn)]] = True
    return some
