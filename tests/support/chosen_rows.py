"""What ranks do for the tests of runs that compute some rows alone; light to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from embertide.kernels.scratch import Scratch
from embertide.primitives.exchange import Exchange
from embertide.steps import Program
from embertide.telemetry.chosen import ChosenFacts
from embertide.telemetry.self_check import SelfCheck
from tests.support.typed_world import COUNTS, TypedRank
from tests.support.world import NODES, Graph, Rank, make_features, make_job

SETS = ((5,), (2,), (3, 60, 85, 96), tuple(range(0, NODES, 7)))
"""An ordinary node, a hub, some with no in-edges among them, many."""
Cases = Mapping[str, tuple[Program, str, bool]]


@dataclass(frozen=True)
class Chosen:
    """Some rows of a case on one rank.

    Attributes:
        rows, expected: [our chosen rows, D'] computed alone, and of a run of all rows.
        largest: magnitude of all rows of that run.
    """

    rows: np.ndarray
    expected: np.ndarray
    largest: float
    facts: ChosenFacts
    checked: SelfCheck


def embed_sets(
    exchange: Exchange,
    graphs: dict[tuple[str, bool], Graph],
    cases: Cases,
    sets: tuple[tuple[int, ...], ...] = SETS,
    inference: dict[str, Any] | None = None,
    scratch: str = "",
) -> dict[str, list[Chosen]]:
    """Case -> each set of rows. Collective: every rank must call.

    Args:
        scratch: a folder where tensors of nodes are; "": they are in memory.
    """
    answers: dict[str, list[Chosen]] = {}
    for name, (program, kind, weighted) in cases.items():
        rank = Rank(
            exchange, graphs[kind, weighted], make_job(weighted=weighted, **inference or {})
        )
        if scratch:
            rank.ctx = replace(rank.ctx, scratch=Scratch(Path(scratch)), panel=2)
        features = make_features(program.input_width)
        whole, first = rank.embed(program, features), rank.ranges.worker(exchange.grid.rank)[0]
        answers[name] = []
        for asked in sets:
            chosen = torch.zeros(NODES, dtype=torch.bool)
            chosen[list(asked)] = True
            facts = rank.ctx.graph_facts.chosen = ChosenFacts()
            rows, checked = rank.embed_chosen(program, features, chosen)
            ours = chosen[first : first + len(whole)].numpy()
            largest = float(np.abs(whole).max(initial=0.0))
            answers[name].append(Chosen(rows, whole[ours], largest, facts, checked))
    return answers


def embed_typed_sets(
    exchange: Exchange, programs: list[Program], share: int
) -> list[dict[str, Chosen]]:
    """Node type of each program's results -> every ``share``-th row of it alone.

    Collective: every rank must call.
    """
    rank, answers = TypedRank(exchange), []
    for program in programs:
        whole, own = rank.embed(program), dict[str, Chosen]()
        for key, name in program.results.items():
            of_type = program.types[name]
            chosen = torch.zeros(COUNTS[of_type], dtype=torch.bool)
            chosen[1::share] = True
            facts = rank.ctx.graph_facts.chosen = ChosenFacts()
            only = program.only({key: name})
            rows, checked = rank.checked(only, 1000, chosen={of_type: chosen})
            assert checked is not None
            first = rank.graph.located[of_type].ranges.worker(exchange.grid.rank)[0]
            ours = chosen[first : first + len(whole[key])].numpy()
            largest = float(np.abs(whole[key]).max(initial=0.0))
            own[key] = Chosen(rows[key], whole[key][ours], largest, facts, checked)
        answers.append(own)
    return answers
