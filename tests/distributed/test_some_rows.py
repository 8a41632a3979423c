"""Some rows of every model have the bits that a run of all rows gives, from the edges they need."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from embertide.kernels.csr import only_rows, sources_of
from embertide.pipeline.some_rows import only_wanted
from embertide.plans.wanted import wanted_rows
from embertide.primitives.exchange import Exchange
from embertide.stages.infer import Graphs
from embertide.steps import Message, PairAttend, Program
from tests.support import world
from tests.support.catalogue import GRAPHS, Case, catalogue
from tests.support.exact import TOLERANCE
from tests.support.ranks import on_grid
from tests.support.world import NODES, Graph, Rank, make_features, make_job

pytestmark = pytest.mark.distributed

SETS = ((5,), (2,), (3, 60, 85, 96), tuple(range(0, NODES, 7)))
"""An ordinary node, a hub, some with no in-edges among them, many."""
Answer = list[tuple[np.ndarray, int, int]]


def embed_some(
    exchange: Exchange,
    graphs: dict[tuple[str, bool], Graph],
    cases: list[tuple[Program, str, bool]],
) -> list[tuple[np.ndarray, Answer]]:
    """All rows of every case, and those of each set with the edges gone over, of how many."""
    answers = []
    for program, kind, weighted in cases:
        rank = Rank(exchange, graphs[kind, weighted], make_job(weighted=weighted))
        features = make_features(program.input_width)
        whole, some = rank.embed(program, features), []
        for asked in SETS:
            some.append(_some_of(rank, program, features, asked))
        answers.append((whole, some))
    return answers


def _some_of(
    rank: Rank, program: Program, features: torch.Tensor, asked: tuple[int, ...]
) -> tuple[np.ndarray, int, int]:
    """Our rows of a set, by layer graphs with the edges of the rows that it needs."""
    rows, usual, counted = torch.zeros(NODES, dtype=torch.bool), world.layer_graphs, [0, 0]
    rows[list(asked)] = True

    def some(_ctx: object, layers: SimpleNamespace, *more: object) -> Graphs:
        def neighbours(_relation: str, of: torch.Tensor) -> torch.Tensor:
            return sources_of(rank.sub_range, of, NODES)

        wanted = wanted_rows(layers.plan, {program.output: rows}, {"": NODES}, neighbours)
        for of in wanted.values():
            counted[0] += only_rows(rank.sub_range, of).nnz
            counted[1] += rank.sub_range.nnz
        return only_wanted(usual(_ctx, layers, *more), wanted)  # type: ignore[arg-type]

    world.layer_graphs = some  # type: ignore[assignment]
    try:
        embedded = rank.embed(program, features)
    finally:
        world.layer_graphs = usual
    return embedded[list(asked)], *counted  # type: ignore[return-value]


def _multiplies_along_edges(case: Case) -> bool:
    """Whether edges are multiplied in blocks, whose sizes decide how sums are rounded."""
    return any(isinstance(step, Message | PairAttend) for step in case.program.steps)


def test_some_rows_of_every_model_have_the_bits_of_all() -> None:
    """Up to rounding where edges are multiplied in blocks."""
    cases: dict[str, Case] = catalogue()
    programs = [(case.program, case.kind, case.weighted) for case in cases.values()]
    (answers,) = on_grid(1, 1, embed_some, GRAPHS, programs)
    wrong, gone_over, all_edges = [], 0, 0
    for (name, case), (whole, some) in zip(cases.items(), answers, strict=True):
        for asked, (rows, edges, of) in zip(SETS, some, strict=True):
            expected = whole[list(asked)]
            error = float(np.abs(rows - expected).max() / np.abs(whole).max())
            allowed = TOLERANCE if _multiplies_along_edges(case) else 0.0
            if not error <= allowed:
                wrong.append((name, asked, error))
            gone_over, all_edges = gone_over + edges, all_edges + of
    assert not wrong
    assert gone_over < 0.6 * all_edges
