"""A program that is wrong, files that give no module, and weights of another one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from embertide.errors import ModelError
from embertide.tracing.export import export_module
from embertide.tracing.load import build, load_weights
from tests.support.models import shake
from tests.support.pyg import pyg


def test_a_wrong_program_is_refused_and_names_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from embertide.tracing.lower import functions

    wrong = functions.HANDLERS["relu"]
    monkeypatch.setitem(functions.HANDLERS, "tanh", wrong)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.lin = pyg.SAGEConv(5, 3), nn.Linear(3, 3)

        def forward(self, x, edge_index):
            h = self.conv(x, edge_index).tanh()
            return self.lin(h)

    with pytest.raises(ModelError, match=r"The first step that differs is 0\.relu") as caught:
        export_module(shake(Net()), width=5)
    assert f"{__file__}:" in str(caught.value)
    assert "Nothing was written" in str(caught.value)


# Files, classes and weights.


def user_file(folder: Path, text: str) -> str:
    (folder / "net_of_user.py").write_text(text)
    return str(folder / "net_of_user.py")


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("import nothing_of_this_name", "Net", r"user\.py:1: importing the file fails with Module"),
        ("class Net(:", "Net", r"user\.py:1: importing the file fails with SyntaxError"),
        ("def Net(): return 3", "Net", "Net gives a int, not a torch.nn.Module"),
        ("x = 1", "Net", "has no Net; write FILE.py:NAME"),
        ("def Net(width): return width", "Net", r"Net\(\) fails with TypeError.*--init"),
    ],
)
def test_files_that_give_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str, told: str
) -> None:
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    monkeypatch.delitem(__import__("sys").modules, "net_of_user", raising=False)
    with pytest.raises(ModelError, match=told):
        build(f"{user_file(tmp_path, text)}:{name}", {})


@pytest.mark.parametrize(
    ("target", "told"),
    [("models.py", "write FILE.py:NAME"), ("nowhere/models.py:Net", "no such file")],
)
def test_targets(target: str, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        build(target, {})


def test_weights_of_another_module() -> None:
    module = nn.ModuleDict({"lin": nn.Linear(3, 3)})
    stored = dict(module.state_dict())
    load_weights(module, {f"module.{name}": one for name, one in stored.items()}, "best.pt")
    stored["lin.weight"] = torch.zeros(3, 4)
    stored["other"] = stored.pop("lin.bias")
    with pytest.raises(ModelError) as caught:
        load_weights(module, stored, "best.pt")
    told = str(caught.value)
    assert "lin.bias: missing" in told
    assert "other: unknown to the module" in told
    assert "lin.weight: [3, 4], but the module has [3, 3]" in told
    assert "--init" in told
