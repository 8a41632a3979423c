"""Every model the library reads, as programs with weights from DGL's and PyG's own modules.

The modules and their descriptions are those that the unit tests compare with the libraries;
``on_grids=False`` leaves out those that differ in how a model is read, not in what is computed.
"""

from __future__ import annotations

import functools

import torch

from embertide.models.dgl_interop import why_no_dgl
from embertide.models.layer import Library
from embertide.program.steps import Aggregate, Combine, Linear, Program
from tests.support.conv_cases import CASES, EXAMPLES, library_nn
from tests.support.conv_cases.case import Example
from tests.support.conv_cases.models import DGL_LAYERS, DGL_STACK, PYG_LAYERS, PYG_MODELS
from tests.support.models import program_of, shake
from tests.support.step_cases import step_cases
from tests.support.world import Case


def catalogue() -> dict[str, Case]:
    """Name -> case; models take turns on the directed and the undirected graph.

    Those that read features of edges have the one with features.
    """
    return dict(_cases())


@functools.cache
def _cases() -> dict[str, Case]:
    """Made once for all tests of a process."""
    programs = {**_pyg(), **_layers(), **_convolutions("pyg", of_edges=True), **_made(), **_steps()}
    if not why_no_dgl():
        programs |= _dgl()
    return {
        name: Case(program, _kind(program, number), weighted)
        for number, (name, (program, weighted)) in enumerate(programs.items())
    }


def _kind(program: Program, number: int) -> str:
    return "featured" if program.edge_columns() else ("directed", "undirected")[number % 2]


def _dgl() -> dict[str, tuple[Program, bool]]:
    return {
        "dgl stack": _read(DGL_STACK),
        **{f"dgl {name}": _read(example) for name, example in DGL_LAYERS.items()},
        **_convolutions("dgl"),
        **_examples("dgl"),
    }


def _pyg() -> dict[str, tuple[Program, bool]]:
    models = {f"pyg {name}": _read(example) for name, example in PYG_MODELS.items()}
    return models | _convolutions("pyg")


def _read(example: Example) -> tuple[Program, bool]:
    return program_of(example.yaml, shake(example.make())), example.weighted


def _examples(library: Library) -> dict[str, tuple[Program, bool]]:
    """The models of docs/model.md."""
    return {
        f"{library} example {name}": _read(example)
        for name, example in EXAMPLES[library].items()
        if example.on_grids
    }


def _layers() -> dict[str, tuple[Program, bool]]:
    """Layers without edges, propagation and JumpingKnowledge."""
    layers = {f"pyg {name}": _read(example) for name, example in PYG_LAYERS.items()}
    return _examples("pyg") | layers


def _convolutions(library: Library, *, of_edges: bool = False) -> dict[str, tuple[Program, bool]]:
    """Those with features of edges, or the others."""
    return {
        f"{library} {name}": (
            program_of(case.text(library), shake(case.module(library_nn(library)))),
            case.weighted,
        )
        for name, case in CASES[library].items()
        if case.on_grids and bool(case.features) == of_edges
    }


def _made() -> dict[str, tuple[Program, bool]]:
    """Every norm with both kinds of loops, on the features themselves and behind a product."""
    programs = {}
    g = torch.Generator().manual_seed(1)
    params = {"w": torch.randn(7, 10, generator=g), "v": torch.randn(7, 10, generator=g)}
    widths = {"x": 10, "h": 7, "r": 7, "a": 10, "b": 7, "out": 7}
    for norm in ("none", "in", "out", "both", "sym_in", "sym_in_weighted"):
        for loops in ("keep", "single"):
            how = {"norm": norm, "loops": loops, "loop_weight": 2.0, "edge_weight": True}
            steps = (
                Aggregate(out="a", layer=0, x="x", **how),
                Linear(out="h", layer=0, x="a", weight="w"),
                Linear(out="r", layer=0, x="x", weight="v"),
                Aggregate(out="b", layer=1, x="h", **how),
                Combine(out="out", layer=1, a="b", b="r", alpha=0.5),
            )
            programs[f"made {norm} {loops}"] = (
                Program(steps=steps, params=params, widths=widths, layers=2),
                loops == "keep",
            )
    return programs


def _steps() -> dict[str, tuple[Program, bool]]:
    """Kinds of steps in all their forms; each second one with edge weights."""
    return {
        f"step {name}": (program, number % 2 == 1)
        for number, (name, program) in enumerate(step_cases().items())
    }
