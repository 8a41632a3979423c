"""Programs of described models of several node types, for the grids to run in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from embertide.program.steps import Program
from tests.support import hetero_cases_dgl, hetero_cases_pyg
from tests.support.dgl_library import dgl
from tests.support.hetero_case import shaken
from tests.support.pyg import pyg
from tests.support.sharing_programs import additive, messages, pairs, read
from tests.support.typed_programs import (
    attending,
    carrying,
    carrying_on,
    from_files,
    looped,
    normed,
    relational,
    scaled,
    sharing,
)

ON_GRIDS = [
    ("pyg", "rgcn-bases"), ("pyg", "hetero-deep"), ("dgl", "hetero-attention"), ("pyg", "han"),
    ("pyg", "hetero-weighted"), ("pyg", "hgt"), ("pyg", "rgcn-bases-narrow"),
    ("dgl", "rgcn-by-all"), ("pyg", "hetero-sum"), ("pyg", "rgcn-blocks"),
    ("pyg", "hetero-featureless"), ("dgl", "hgt-norm"), ("pyg", "hetero-cat"),
    ("dgl", "hetero-deep"), ("pyg", "rgcn-max"),
]  # fmt: skip
"""Cases whose steps differ."""
MADE = (
    relational, attending, from_files, sharing, normed, carrying, carrying_on, additive, pairs,
    messages, read, scaled, looped,
)  # fmt: skip
"""Programs that no library's model has."""


def typed_catalogue() -> dict[str, Program]:
    """Name -> program, of several node types."""
    made = {f"types made {make.__name__}": make() for make in MADE}
    return {f"types {name}": program for name, program in named()} | made


def described(turn: int, turns: int) -> list[Program]:
    """Every ``turns``-th case from ``turn`` on; DGL's where it is installed."""
    return [program for _, program in named(ON_GRIDS[turn::turns])]


def named(cases: Sequence[tuple[str, str]] = ON_GRIDS) -> Iterator[tuple[str, Program]]:
    """Names and programs; those with edge weights are as any other, since the graph has some."""
    for library, name in cases:
        of_library, nn = hetero_cases_pyg.CASES, pyg
        if library == "dgl":
            if dgl is None:
                continue
            of_library, nn = hetero_cases_dgl.CASES, dgl.nn.pytorch
        case = of_library[name]
        yield f"{library} {name}", case.program(library, shaken(case, nn))
