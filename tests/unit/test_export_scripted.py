"""What torch.jit made of a module, a part of it, or a function that it calls."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.tracing.export import export_module
from embertide.tracing.prove.agreement import TOLERANCE
from tests.support.models import shake

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    @torch.jit.script
    def gated(x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    traced = torch.jit.trace(lambda x: x * 2, torch.zeros(2))
    part = torch.jit.script(nn.Linear(5, 3))


class Calls(nn.Module):
    """A layer, and a scripted function."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(5, 3)

    def forward(self, x, edge_index):
        return gated(self.lin(x))


class CallsTraced(Calls):
    def forward(self, x, edge_index):
        return traced(self.lin(x))


class Keeps(Calls):
    def __init__(self) -> None:
        super().__init__()
        self.function = gated


class Part(nn.Module):
    """A part that is scripted."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = part

    def forward(self, x, edge_index):
        return self.lin(x)


@pytest.mark.parametrize("kind", [Calls, CallsTraced])
def test_a_scripted_function_is_recorded_as_it_was_written(kind: type[nn.Module]) -> None:
    done = export_module(shake(kind()))
    assert done.proof.largest_error <= TOLERANCE
    assert gated(torch.ones(1)).item() == pytest.approx(0.7310586)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Keeps(), "Keeps cannot be copied: .*ScriptFunction.*keep it out of the module"),
        (Part(), r"Part.lin \(Linear\) is scripted .* put Linear itself in its place"),
        (part, "the module Linear is scripted or traced"),
    ],
)
def test_what_has_no_python_code_is_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        export_module(module, width=5)
