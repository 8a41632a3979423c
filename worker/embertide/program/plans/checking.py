"""The last pass: what every plan keeps to, whatever the passes before have done."""

from __future__ import annotations

from embertide.program.plans.plan import Plan


def check(plan: Plan) -> Plan:
    """Every step is in one operation, in order, and reads what is there by then."""
    steps = [step for op in plan.ops for step in op.steps]
    assert steps == list(plan.program.steps), "operations have other steps than the program"
    assert len(plan.phases) == len(plan.ops), "operations without a phase"
    there = set(plan.program.inputs.values())
    for step in steps:
        missing = set(step.reads()) - there
        assert not missing, f"step {step.out!r} reads {missing} before it is made"
        there.add(step.out)
    for op in plan.ops:
        named, first = {read.name for read in op.inputs}, op.steps[0]
        bare = set() if op.reads(first.out, "sums") else set(first.reads()) - named
        assert not bare, f"step {first.out!r} reads {bare} without a layout"
    lacking = set(plan.program.results.values()) - there
    assert not lacking, f"nothing makes the results {lacking}"
    return plan
