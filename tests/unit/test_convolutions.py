"""Every convolution gives what its library's own module gives on the whole graph."""

from __future__ import annotations

import pytest
import torch

from embertide.models.layer import Library
from tests.support.conv_cases import CASES, library_nn
from tests.support.conv_cases.comparing import edges_of
from tests.support.models import GRAPHS, assert_same, features, program_of, run_program, shake


def described(library: Library) -> list[str]:
    return [name for name, case in CASES[library].items() if case.layer]


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", described("pyg"))
def test_pyg(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare("pyg", name, kind, monkeypatch)


@pytest.mark.dgl
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", described("dgl"))
def test_dgl(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare("dgl", name, kind, monkeypatch)


def compare(library: Library, name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case's program with its module on the whole graph."""
    case, graph = CASES[library][name], GRAPHS[kind]
    module = shake(case.module(library_nn(library)))
    program = program_of(case.text(library), module)
    x, edges = features(program.input_width), edges_of(library, kind, monkeypatch)
    own = graph.features(case.features)
    given = (edges, x) if library == "dgl" else (x, edges)
    given += () if own is None else (own.double(),)
    more = {"edge_weight": graph.weight.double()} if case.weighted else {}
    with torch.no_grad():
        expected = case.forward(module.double()["conv"], *given, **more)
    found = run_program(program, graph, x, case.weighted or case.weights_unread)
    assert_same(found, expected, case.tolerance)
