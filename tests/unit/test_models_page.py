"""docs/model.md and docs/model/ are what the options are, and their examples are exact."""

from __future__ import annotations

from typing import get_args

import pytest

from embertide.models.kinds import LAYERS
from embertide.models.layer import Library
from tests.support.conv_cases import EXAMPLES
from tests.support.conv_cases.case import Example
from tests.support.conv_cases.comparing import assert_exact_example
from tests.support.models import (
    GRAPHS,
    features,
    program_of,
    run_program,
    shake,
)

CASES = [(library, conv) for library in get_args(Library) for conv in LAYERS[library]]


def test_every_kind_of_layer_has_an_example_that_uses_it() -> None:
    assert {(library, conv) for library in EXAMPLES for conv in EXAMPLES[library]} == set(CASES)
    for library, conv in CASES:
        assert f"conv: {conv}" in EXAMPLES[library][conv].yaml


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize(("library", "conv"), CASES)
def test_examples(library: Library, conv: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_exact_example(library, EXAMPLES[library][conv], kind, monkeypatch)


def test_examples_need_what_their_description_says() -> None:
    """A description without its activation gives other embeddings: the comparison can fail."""
    example: Example = EXAMPLES["pyg"]["gcn"]
    module, graph, x = shake(example.make()), GRAPHS["directed"], features(5)
    right = program_of(example.yaml, module)
    wrong = program_of(example.yaml.replace("activation: relu", "activation: tanh"), module)
    found = [run_program(program, graph, x, weighted=False) for program in (right, wrong)]
    assert float((found[0] - found[1]).abs().max()) > 0.1
