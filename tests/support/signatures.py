"""What a program does where it runs, as short texts, so that cases can be compared.

A signature is one operation of a plan: its class of grid, its steps, the layouts that it reads and
makes, and what the passes have decided about it; or one choice among the ways in which a kind of
step runs. Cases with the same signatures run the same code, with other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from embertide.program.plans.passes import make_plan
from embertide.program.plans.plan import Plan, Target
from embertide.program.steps import Program
from embertide.program.steps.base import Step
from embertide.program.steps.op import Op
from embertide.spec.grid import GridShape

TARGETS = {
    f"{grid}{' in place' if in_place else ''}": Target(
        grid=GridShape.parse(grid), in_place=in_place
    )
    for grid, in_place in (
        ("1x1", False), ("2x1", False), ("2x1", True), ("1x2", False), ("1x2", True),
        ("2x2", False), ("2x2", True),
    )
}  # fmt: skip
"""Each class of grid, by its smallest one; those ``in place`` have all workers on one host."""


def signatures(program: Program) -> set[str]:
    """What the program does on grids of every class, and the choices of its steps."""
    found = {choice for step in program.steps for choice in _choices(step)}
    for label, target in TARGETS.items():
        plan = make_plan(program, target)
        found |= {f"{label}: {_op(plan, op)}" for op in plan.ops}
    return found


def _choices(step: Step) -> Iterator[str]:
    """Each field that is one of some words, or says whether, with its value."""
    names = {*step.reads(), *step.param_names(), getattr(step, "relation", "")}
    for field in fields(step):
        value = getattr(step, field.name)
        if isinstance(value, bool | str) and field.name != "out" and value not in names:
            yield f"{step.kind_name} {field.name} {value}"


def _op(plan: Plan, op: Op) -> str:
    """``kinds(layouts read) -> layout``, and what is decided beside these."""
    decided = {
        "product": op.product is not None,
        "onto": op.onto is not None,
        "part": op.part,
        "adds last": op.adds_last,
        "changes its input": op.reuses is not None,
        "brings": len(op.brings) == 1,
        "brings several": len(op.brings) > 1,
        "scales": op.scales,
        "whole rows": plan.whole_rows,
    }
    more = "".join(f", {word}" for word, does in decided.items() if does)
    kinds = "+".join(step.kind_name for step in op.steps)
    reads = ", ".join(read.layout for read in op.inputs)
    return f"{kinds}({reads}) -> {op.layout}, {op.reach.name.lower()}{more}"


def cover(cases: Mapping[str, set[str]], costs: Mapping[str, float]) -> dict[str, set[str]]:
    """Few and cheap cases that have all signatures, each with those that those before it lack."""
    left, chosen = set[str]().union(*cases.values()), list[str]()
    while left:
        chosen.append(max(cases, key=lambda name: (len(cases[name] & left) / costs[name], name)))
        left -= cases[chosen[-1]]
    for name in tuple(chosen):
        others = set[str]().union(*(cases[other] for other in chosen if other != name))
        if cases[name] <= others:
            chosen.remove(name)
    had, added = set[str](), dict[str, set[str]]()
    for name in chosen:
        added[name] = cases[name] - had
        had |= cases[name]
    return added
