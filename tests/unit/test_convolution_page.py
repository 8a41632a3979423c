"""docs/convolutions.md lists what the tests hold against the libraries, and every option is."""

from __future__ import annotations

import pytest

from embertide.errors import ModelError
from embertide.models.kinds import LAYERS
from embertide.models.layer import Library
from tests.support.convolution_cases import HeldLayer, held_layers
from tests.support.models import program_of
from tests.support.paths import ROOT
from tools.pages.convolutions import page_of, untested


@pytest.fixture(scope="module")
def layers() -> list[HeldLayer]:
    return list(held_layers())


@pytest.mark.dgl
def test_the_page_is_what_the_cases_say(layers: list[HeldLayer]) -> None:
    page = (ROOT / "docs" / "convolutions.md").read_text(encoding="utf-8")
    assert page == page_of(layers), "run python -m tools.pages"


@pytest.mark.dgl
def test_every_option_is_held_against_the_library(layers: list[HeldLayer]) -> None:
    assert untested(layers) == []


REFUSED = [
    (library, conv, name, value, why)
    for library, kinds in LAYERS.items()
    for conv, kind in kinds.items()
    for name, reasons in kind.refused.items()
    for value, why in reasons.items()
]


@pytest.mark.parametrize(("library", "conv", "name", "value", "why"), REFUSED)
def test_what_is_refused_is_said_why(
    library: Library, conv: str, name: str, value: str, why: str
) -> None:
    with pytest.raises(ModelError) as caught:
        program_of(f"library: {library}\nlayers: [{{conv: {conv}, {name}: {value}}}]", {})
    assert f"layers[0].{name}: is {value!r}; allowed: " in str(caught.value)
    assert f"({why})" in str(caught.value)
