"""Steps that read the same rows are put where these can travel once for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from embertide.program.plans.order import gather_needs
from embertide.program.plans.passes import make_plan
from embertide.program.steps import Attend, PairAttend, Program, Step
from tests.support import hetero_cases_pyg
from tests.support.hetero_case import shaken
from tests.support.plans import order_steps, target
from tests.support.pyg import pyg
from tests.support.sharing_programs import additive, messages, pairs, read
from tests.support.typed_programs import FOLLOWS, program


def described(name: str) -> Program:
    case = hetero_cases_pyg.CASES[name]
    return case.program("pyg", shaken(case, pyg))


def over(program: Program, *kinds: type[Step]) -> list[Attend | PairAttend]:
    return [s for s in program.steps if isinstance(s, (Attend, PairAttend)) and type(s) in kinds]


@pytest.mark.parametrize(("name", "kind"), [("hgt", PairAttend), ("han", Attend)])
def test_relations_out_of_a_type_read_its_keys_and_values_together(
    name: str, kind: type[Step]
) -> None:
    ordered = order_steps(described(name), 4)
    leaving = Counter((s.layer, s.relation.split(":")[0]) for s in over(ordered, kind))
    assert max(leaving.values()) > 1
    for step in over(ordered, kind):
        sharing = ordered.groups[step.out]
        assert len(sharing) == leaving[step.layer, step.relation.split(":")[0]]


def test_projections_of_its_own_keep_a_relation_apart() -> None:
    ordered = order_steps(described("hetero-to-hetero"), 4)
    assert over(ordered, Attend, PairAttend)
    assert all(len(ordered.groups[step.out]) == 1 for step in over(ordered, Attend, PairAttend))


@pytest.mark.parametrize("made", [additive(), pairs(), messages(), read()])
def test_every_step_reads_what_is_there(made: Program) -> None:
    ordered = order_steps(made, 2)
    found = set(ordered.inputs.values())
    for step in ordered.steps:
        assert found.issuperset(step.reads())
        found.add(step.out)
    assert sorted(map(len, ordered.groups.values())) == [2, 2, 2, 2]
    assert order_steps(ordered, 2).steps == ordered.steps


def test_one_worker_keeps_the_order() -> None:
    plan = make_plan(messages(), target(1), [gather_needs])
    assert plan.program.steps == messages().steps


def test_a_step_that_follows_from_another_brings_its_rows_itself() -> None:
    """A softmax that goes on over the same rows, and what reads its result."""
    dots = {"x": "user.x", "key": "user.x", "heads": 1, "kind": "dot", "relation": FOLLOWS}
    steps: list[Step] = [
        PairAttend(out="one", layer=0, query="user.x", log_sum=True, **dots),
        PairAttend(out="two", layer=0, query="user.x", before="one", **dots),
        PairAttend(out="three", layer=0, query="two", **dots),
        PairAttend(out="four", layer=0, query="user.x", log_sum=True, **dots),
    ]
    widths = {"one": 8, "two": 7, "three": 7, "four": 8}
    ordered = order_steps(program(steps, {}, widths, {"user": "three"}, 1), 2)
    assert names(ordered.steps) == ["one", "two", "three", "four"]
    assert {name: names(group) for name, group in ordered.groups.items()} == {
        "one": ["one", "four"], "two": ["two"], "three": ["three"], "four": ["one", "four"],
    }  # fmt: skip


def names(steps: Sequence[Step]) -> list[str]:
    return [step.out for step in steps]
