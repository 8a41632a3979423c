"""What cannot be exported is one message that names the line of the user's file and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from embertide.errors import ModelError
from embertide.tracing.export import export_module
from embertide.tracing.load import build, load_weights
from tests.support import export_mistakes as mistakes
from tests.support.models import shake

FILE = mistakes.__file__
LINES = Path(FILE).read_text().splitlines()

AT_A_LINE = {
    "Branch": "if, while or assert on a tensor.*choose with torch.where",
    "Item": "a tensor becomes a number",
    "InPlace": "__setitem__ changes a tensor in place.*make a new tensor",
    "Dropout": r"dropout stays active in eval mode.*training=self\.training",
    "Batches": r"norm \(GraphNorm\) is given batch; all nodes here are of one graph",
    "Pooling": "columns of a statistic over all nodes or edges are not known by number; take them",
    "Statistic": "columns of a statistic over all nodes or edges are not known by number; take",
    "Pooled": "a row for the whole graph is returned, a mean or sum over all nodes",
    "Picked": "rows are picked out by number.*return all rows",
    "Loops": r"conv \(SAGEConv\) is given edges that were changed at .*py:\d+.*change those",
    "Rows": r"a constant of shape \[\d+, 1\] has a row for each node of one graph",
    "Unknown": r"torch's logcumsumexp is not known here.*docs/export\.md",
    "Lstm": r"own \(SAGEConv\) aggregates by MedianAggregation; known are sum, mean, max, min",
    "EdgeFeatures": r"own \(GATConv\) is given features of edges that were computed",
    "Table": "features that do not come from the graph's.*name a table by --table",
    "Message": "torch's logcumsumexp is not known here",
    "Raises": "forward failed on a small random graph with RuntimeError: .*shapes",
}

ANYWHERE = {
    "Hidden": "the module gives something else when it is called again.*changes a tensor in place",
    "Random": r"Random\.forward draws random numbers in eval mode.*keep them as a buffer",
    "Several": "forward returns a list of .* as 'out1'; it must return one tensor with a row for",
    "NoGraph": "forward has x; it must take the features and the graph",
    "Arguments": "forward needs temperature.*--inputs",
}


def failure(name: str) -> str:
    with pytest.raises(ModelError) as caught:
        export_module(shake(getattr(mistakes, name)()), width=5)
    return " ".join(str(caught.value).split())


@pytest.mark.parametrize("name", AT_A_LINE)
def test_messages_name_the_line(name: str) -> None:
    told = failure(name)
    (line,) = [n for n, text in enumerate(LINES, 1) if text.endswith(f"  # {name}")]
    assert told.startswith(f"{FILE}:{line}: ")
    assert re.search(AT_A_LINE[name], told)


@pytest.mark.parametrize("name", ANYWHERE)
def test_messages_of_the_whole_module(name: str) -> None:
    assert re.search(ANYWHERE[name], failure(name))


def test_every_mistake_has_a_message() -> None:
    classes = {name for name, one in vars(mistakes).items() if isinstance(one, type)}
    assert classes - {"Base"} == set(AT_A_LINE) | set(ANYWHERE)


def test_a_wrong_program_is_refused_and_names_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from embertide.tracing.lower import functions

    wrong = functions.HANDLERS["relu"]
    monkeypatch.setitem(functions.HANDLERS, "tanh", wrong)

    class Net(mistakes.Base):
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
    module = mistakes.Base()
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
