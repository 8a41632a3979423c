"""How wrong the results of a run with a tolerance are: some of their rows, from exact ones on.

Rows are drawn among those that changes may reach, since no other row has another error than before.
They are computed over all rows that they are made of, from the end of the first layer on, whose
rows are exact (:mod:`embertide.engine.stages.infer.beside`), or from the features where there is no
other layer: with the bits of a run of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from embertide.engine.stages.infer.doubt import Doubt
from embertide.engine.stages.infer.excerpt_run import ExcerptRun
from embertide.engine.stages.infer.moved import relative_errors
from embertide.engine.stages.infer.taking_over import Refreshing
from embertide.facts.telemetry.refresh import RefreshFacts
from embertide.kernels.torch_threads import on_one_thread
from embertide.program.plans.plan import Plan
from embertide.program.plans.wanted import Rows
from embertide.program.selfcheck.draw import draw
from embertide.program.steps.execution import Execution

MEASURED_ROWS = (1, 4, 16, 64, 256)
"""Rows of each result: the last number whose edges are few enough."""
MOST_EDGES = 0.1
"""The share of the edges of a run of all rows that measuring may go over,"""
MOST_TIMES = 1.5
"""or how many times the edges that the fewest rows need, if that is more."""
TOO_WRONG = (
    "of {rows} rows of the results that were computed from exact rows, one is wrong by"
    " {error:.2g} of its norm, more than {limit:g} (refresh.maxError)"
)
NOT_FINITE = (
    "of {rows} rows of the results that were computed from exact rows, one is not finite, so that"
    " its error cannot be measured (refresh.tolerance)"
)


@dataclass
class Measured:
    """Rows of the results as a run of all rows has them.

    Attributes:
        count: of all ranks.
        exact: result -> the numbers of ours among our rows, and the rows themselves.
    """

    count: int = 0
    exact: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def compare(
        self,
        whole: Execution,
        results: Mapping[str, torch.Tensor],
        refreshing: Refreshing,
        facts: RefreshFacts,
    ) -> None:
        """Note the largest relative error. Collective: every rank must call.

        Args:
            results: key -> our rows of it.

        Raises:
            Doubt: it is larger than it may be.
        """
        ours = [0.0]
        for key, (rows, exact) in self.exact.items():
            ours += relative_errors(exact, results[key][rows]).tolist()
        facts.measured = self.count
        facts.error = max(whole.exchange.all_objects(max(ours)))
        if math.isinf(facts.error):
            raise Doubt(NOT_FINITE.format(rows=facts.measured))
        if not facts.error <= refreshing.max_error:
            raise Doubt(
                TOO_WRONG.format(rows=facts.measured, error=facts.error, limit=refreshing.max_error)
            )


def measure(
    runs: ExcerptRun, plan: Plan, whole: Execution, first: int, refreshing: Refreshing
) -> Measured:
    """Compute some rows of the results. Collective: every rank must call.

    Args:
        runs: where the graphs of all operations are open, and the tensors are exact.
        plan: of excerpts.
        first: the operation that begins with exact tensors.
    """
    program = plan.program
    with on_one_thread():
        drawn = _drawn(runs, plan, first, refreshing)
    if not drawn:
        return Measured()
    excerpt, execution = runs.run(plan, first, len(plan.ops), drawn, counted=False)
    measured = Measured(sum(int(rows.sum()) for rows in drawn.values()))
    for key, name in program.results.items():
        if name not in drawn:
            continue
        of_type = program.types[name]
        rows = excerpt.of_ours(whole, of_type, "rows")
        start, stop = whole.ranges[of_type].worker(whole.grid.rank)
        some = drawn[name][start:stop][rows]
        exact = execution.tensors.converted(name, "rows", execution.channel(0)).data[some]
        measured.exact[key] = rows[some], exact
    return measured


def _drawn(runs: ExcerptRun, plan: Plan, first: int, refreshing: Refreshing) -> dict[str, Rows]:
    """Tensor -> [N] bool, the rows of the results to measure; {}: changes reach none."""
    names = dict.fromkeys(plan.program.results.values())
    reached = {name: refreshing.reached[name] for name in names}
    reached = {name: rows for name, rows in reached.items() if bool(rows.any())}
    drawn, limit = dict[str, Rows](), 0.0
    for count in MEASURED_ROWS if reached else ():
        some = {name: _some(rows, count, refreshing.seed) for name, rows in reached.items()}
        wanted, _ = runs.wanted(plan, plan.ops[first:], some)
        edges = sum(runs.count_edges(wanted).values())
        # Where few rows are made of most of the graph, many are made of little more.
        limit = limit or max(MOST_EDGES * refreshing.all_edges, MOST_TIMES * edges)
        if edges > limit:
            break
        drawn = some
    return drawn


def _some(rows: Rows, count: int, seed: int) -> Rows:
    """Some of the rows that are set."""
    places = rows.nonzero().squeeze(1)
    drawn = draw(min(count, len(places)), len(places), seed, 0)
    some = torch.zeros_like(rows)
    some[places[torch.from_numpy(drawn)]] = True
    return some
