"""Ways in which a case runs, and what its ranks find wrong with each; light, as ranks import it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from embertide.primitives.exchange import Exchange
from embertide.steps import Program
from embertide.telemetry.self_check import SelfCheck
from tests.support.plans import order_steps
from tests.support.tasks import use_small_buffers
from tests.support.typed_world import TypedRank
from tests.support.world import GRAPHS, Case, Rank, make_features, make_job

Rows = dict[str, np.ndarray]
"""Node type -> [our rows, D']; "" where there is one type."""
EVERY_ROW = 1000
"""More than any type has: all rows are computed a second time."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """How cases run, and so what they are compared with.

    Attributes:
        rows: type of the rows that are kept and sent; bfloat16 is compared within its roundings.
        fanout: edges that each layer samples of a node; 0: all. Samples have no reference.
    """

    name: str
    rows: str = "float32"
    fanout: int = 0


@dataclass
class Answer:
    """What a rank has to say of a case.

    Attributes:
        rows: ours, of a run of all rows.
        wrong: what is not as it should be.
        facts: numbers that tests want to be large, or small, over all cases.
    """

    rows: Rows = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)


class Worker:
    """A rank of either world, whose results are by node type. Collective: every rank must call."""

    def __init__(self, exchange: Exchange, case: Case, mode: Mode) -> None:
        self.exchange, self.typed = exchange, case.kind == "types"
        self._rank = _typed(exchange, mode) if self.typed else _plain(exchange, case, mode)

    def run(self, program: Program, checked: int | None = None) -> tuple[Rows, SelfCheck | None]:
        """Our rows; with what computing so many of each layer again gives."""
        if isinstance(self._rank, TypedRank):
            return self._rank.checked(program, checked)
        rows, found = self._rank.checked(program, make_features(program.input_width), checked)
        return {"": rows}, found


def _typed(exchange: Exchange, mode: Mode) -> TypedRank:
    assert not mode.fanout
    return TypedRank(exchange, mode.rows)


def _plain(exchange: Exchange, case: Case, mode: Mode) -> Rank:
    sampled: dict[str, Any] = {"fanout": [mode.fanout] * 20} if mode.fanout else {}
    job = make_job(weighted=case.weighted, rows=mode.rows, **sampled)
    return Rank(exchange, GRAPHS[case.kind, case.weighted], job)


def run_cases(exchange: Exchange, cases: dict[str, Case], mode: Mode) -> dict[str, Answer]:
    """Each case in a mode, with buffers so small that all are used often.

    Collective: every rank must call.
    """
    use_small_buffers()
    workers: dict[tuple[str, bool], Worker] = {}
    answers = {}
    for name, case in cases.items():
        key = case.kind, case.weighted
        if key not in workers:
            workers[key] = Worker(exchange, case, mode)
        answers[name] = _whole(workers[key], case, mode)
    return answers


def _whole(worker: Worker, case: Case, mode: Mode) -> Answer:
    """All rows, each computed a second time."""
    ordered = order_steps(case.program, worker.exchange.grid.world)
    rows, checked = worker.run(ordered, EVERY_ROW)
    assert checked is not None
    answer = Answer(rows, list(_faults(checked, mode)))
    largest = max(checked.largest_errors.values(), default=0.0)
    # Right rows are off by more than float32 rows may be, so that the type counts.
    if mode.rows == "bfloat16" and not worker.typed and not largest > 1e-4:
        answer.wrong.append(f"the self-check saw no rounded row, but errors of {largest}")
    return answer


def _faults(checked: SelfCheck, mode: Mode) -> Iterator[str]:
    yield from (f"the self-check has {fault}" for fault in checked.faults[:1])
    if not checked.checked and (mode.fanout or not checked.skipped):
        yield "the self-check has seen no row"
