"""What a step does is asked of it: only what builds programs knows a kind of step by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from embertide.program.steps.base import KINDS
from tests.support.paths import ROOT

WORKER = ROOT / "worker" / "embertide"
BUILDERS = tuple(WORKER / name for name in ("program/steps", "models", "tracing"))
NAMES = {kind.__name__ for kind in KINDS.values()}


def test_no_file_but_builders_knows_a_kind_of_step() -> None:
    files = [path for path in WORKER.rglob("*.py") if not any(map(path.is_relative_to, BUILDERS))]
    assert len(files) > 300
    assert [f"{path}:{line}" for path in files for line in known_kinds(path.read_text())] == []


@pytest.mark.parametrize(
    "text",
    [
        "from embertide.program.steps.propagate import Propagate",
        "from embertide.program.steps import Linear as Product, Program",
        "import embertide.program.steps.linear",
        "assert step.kind_name == 'linear'",
        "if step.kind_name in ('linear', 'affine'): ...",
        "match step.kind_name:\n    case 'linear': ...",
    ],
)
def test_a_kind_that_is_known_is_found(text: str) -> None:
    assert [*known_kinds(text)] == [1]


@pytest.mark.parametrize(
    "text",
    ["from embertide.program.steps import Program, Step", "print(f'{step.kind_name} of a layer')"],
)
def test_steps_of_any_kind_may_be_known(text: str) -> None:
    assert [*known_kinds(text)] == []


def known_kinds(text: str) -> Iterator[int]:
    """Lines that import a kind of step, or decide by its name."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if (
                "embertide.program.steps" in module
            ):
                if NAMES.intersection(one.name for one in names):
                    yield node.lineno
            case ast.Import(names=names):
                if any("embertide.program.steps" in one.name for one in names):
                    yield node.lineno
            case ast.Compare(left, _, others):
                if any(map(is_kind, (left, *others))):
                    yield node.lineno
            case ast.Match(subject):
                if is_kind(subject):
                    yield node.lineno


def is_kind(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "kind_name"
