"""Layers without edges, propagation without weights and JumpingKnowledge, against the libraries."""

from __future__ import annotations

import pytest

from tests.support.conv_cases.comparing import assert_exact_example
from tests.support.conv_cases.models import DGL_LAYERS, PYG_LAYERS
from tests.support.models import GRAPHS, program_of, shake


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", PYG_LAYERS)
def test_pyg(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example = PYG_LAYERS[name]
    program = assert_exact_example("pyg", example, kind, monkeypatch)
    assert (program.input_width, len(program.outputs)) == (5, example.yaml.count("conv: "))


def test_only_layers_that_read_edges_have_a_layer_graph() -> None:
    example = PYG_LAYERS["towers-max"]
    program = program_of(example.yaml, shake(example.make()))
    assert program.layers == 2
    assert [step.layer for step in program.steps] == sorted(step.layer for step in program.steps)
    assert [len(program.outputs), program.outputs[-1]] == [6, program.output]


@pytest.mark.dgl
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", DGL_LAYERS)
def test_dgl(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_exact_example("dgl", DGL_LAYERS[name], kind, monkeypatch)
