"""What ``python -m tools.mutants`` draws."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tools.mutants import SOURCES, callers_of
from tools.mutations import ROOMS, candidates, drawn, functions_of, mutated, recording, replacing

MUTATED = {
    "a < b": {"a <= b"},
    "a == b != c": {"a != b != c", "a == b == c"},
    "a + b * c": {"a - (b * c)", "a - b * c", "a + (b // c)"},
    "(a + b) * c": {"((a - b)) * c", "((a + b) // c)"},
    "not a and b": {"(a) and b", "(not a or b)"},
    "f(1, True)": {"f((2), True)", "f(1, (False))", "(f(True, 1))"},
    "min(a)": {"(max(a))"},
    "a.any()": {"(a.all())"},
    "a[b:c]": {"(a[b + 1:c])", "(a[b:c - 1])"},
    "'text'": set(),
    "f'{a + 1}'": set(),
}
UNTOUCHED = """
from typing import TYPE_CHECKING
T = int | str
if TYPE_CHECKING:
    a = 1
def f(a: int | None, b: Literal[1]):
    '''Doc.'''
    c: int | str
    logger.info(a + 1, b)
    if a:
        raise ValueError(a + 1)
    return None
class C:
    def __repr__(self):
        return 1
"""


def _all_of(text: str) -> set[str]:
    made = (mutated(text, node, other) for _, node, other in candidates("r", "p.py", text))
    return {one for one in made if one is not None}


def _plain(expression: str) -> str:
    return ast.dump(ast.parse(expression, mode="eval"))


@pytest.mark.parametrize("text", MUTATED)
def test_an_expression_and_its_mutants(text: str) -> None:
    made = {_plain(one.removeprefix("x = ")) for one in _all_of(f"x = {text}")}
    assert made == {_plain(one) for one in MUTATED[text]}


def test_statements() -> None:
    body = "def f():\n    if a:\n        return\n    g()\n    return b\n"
    assert {one.removeprefix("def f():\n") for one in _all_of(body)} == {
        "    if a:\n        pass\n    g()\n    return b\n",
        "    if a:\n        return\n    pass\n    return b\n",
        "    if a:\n        return\n    g()\n    return None\n",
    }


def test_what_is_never_changed() -> None:
    assert _all_of(UNTOUCHED) == set()


def test_a_seed_draws_the_same_and_keeps_it_where_another_file_changes(tmp_path: Path) -> None:
    for room in ROOMS.values():
        (tmp_path / room).mkdir(parents=True)
        for name in "ab":
            lines = "".join(f"    y.g(x < {at}, {name})\n" for at in range(40))
            (tmp_path / room / f"{name}.py").write_text(f"def f(x):\n{lines}")
    before = drawn(tmp_path, 1, 60)
    assert len(before) == len({(m.path, m.line) for m, _ in before}) == 60
    assert before == drawn(tmp_path, 1, 60)
    assert {m.key for m, _ in before} != {m.key for m, _ in drawn(tmp_path, 2, 60)}
    changed = tmp_path / ROOMS["steps"] / "a.py"
    changed.write_text("\n" + changed.read_text().replace("y.g(x < 3,", "y.h(x < 3,"))
    after = {m.key for m, _ in drawn(tmp_path, 1, 60)}
    assert len(after & {m.key for m, _ in before}) >= 58


def test_callers_of_a_function_and_of_what_no_function_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "class C:\n    B = D + E\n    def f(self):\n        g(0)\nA = B * D\n"
    monkeypatch.setitem(SOURCES, "p.py", text)
    table = [
        {"test": "slow", "seconds": 9, "calls": ["p.py:C.f"]},
        {"test": "quick", "seconds": 1, "calls": ["p.py:C.f"]},
        {"test": "other", "seconds": 0, "calls": ["p.py:h"]},
    ]
    found = {
        mutant.before: [test["test"] for test in callers_of(mutant, table)]
        for mutant, *_ in candidates("r", "p.py", text)
    }
    of_class = ["quick", "slow"]
    assert found == {"0": of_class, "g(0)": of_class, "D + E": of_class} | {
        "B * D": ["other", *of_class]
    }


def test_functions_note_that_they_are_called() -> None:
    nested = "    @d\n    def g():\n        return 1\n    return g()\n"
    text = f"'Doc.'\n\ndef f():\n    'Doc.'\n{nested}"
    calls: list[str] = []
    noting = recording("p.py", text).replace("from mutant_calls import call as _mutant_call", "")
    names: dict[str, Any] = {"_mutant_call": calls.append, "d": lambda function: function}
    exec(noting, names)
    names["f"]()
    assert calls == ["p.py:f", "p.py:f.g"]


def test_functions_that_are_imported_take_a_mutants_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, text = (
        tmp_path / "m.py",
        "A = 1\ndef f(x):\n    return x + A\ndef g():\n    return f(1)\n",
    )
    names: dict[str, Any] = {}
    exec(compile(text, path, "exec"), names)
    module = ModuleType("mutated")
    module.__file__ = str(path)
    after = text.replace("x + A", "x - A")
    assert replacing(path, text, after, {}) == {}  # as nothing has imported it
    monkeypatch.setitem(sys.modules, "mutated", module)
    live = functions_of(tmp_path)
    assert replacing(path, text, text.replace("A = 1", "A = 2"), live) is None
    for function, code in (replacing(path, text, after, live) or {}).items():
        function.__code__ = code
    assert names["g"]() == 0
