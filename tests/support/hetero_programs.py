"""Programs of described models of several node types, for the grids to run in turns."""

from __future__ import annotations

from embertide.steps import Program
from tests.support import hetero_cases_dgl, hetero_cases_pyg
from tests.support.dgl_library import dgl
from tests.support.hetero_case import shaken
from tests.support.pyg import pyg

ON_GRIDS = [
    ("pyg", "rgcn-bases"), ("pyg", "hetero-deep"), ("dgl", "hetero-attention"), ("pyg", "han"),
    ("pyg", "hetero-weighted"), ("pyg", "hgt"), ("pyg", "rgcn-bases-narrow"),
    ("dgl", "rgcn-by-all"), ("pyg", "hetero-sum"), ("pyg", "rgcn-blocks"),
    ("pyg", "hetero-featureless"), ("dgl", "hgt-norm"), ("pyg", "hetero-cat"),
    ("dgl", "hetero-deep"), ("pyg", "rgcn-max"),
]  # fmt: skip
"""Cases whose steps differ."""


def described(turn: int, turns: int) -> list[Program]:
    """Every ``turns``-th case from ``turn`` on; DGL's where it is installed.

    Those with edge weights are as any other, since the graph has some.
    """
    found = []
    for library, name in ON_GRIDS[turn::turns]:
        cases, nn = hetero_cases_pyg.CASES, pyg
        if library == "dgl":
            if dgl is None:
                continue
            cases, nn = hetero_cases_dgl.CASES, dgl.nn.pytorch
        found.append(cases[name].program(library, shaken(cases[name], nn)))
    return found
