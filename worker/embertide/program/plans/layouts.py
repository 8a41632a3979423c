"""Which layout each operation reads and makes, and what it frees, reuses and brings for others.

Costs and runs go by what is decided here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import accumulate

from embertide.program.plans.plan import Plan, Target
from embertide.program.steps.alive import Alive
from embertide.program.steps.op import Op, Reach


def choose_layouts(plan: Plan) -> Plan:
    """Every operation with its layouts, for what is there as it begins."""
    target, last, ops = plan.target, plan.last_reads, list[Op]()
    # On disk features are put in order where sums read every row in place: bits are the same.
    in_order = plan.program.inputs.keys() if target.panel and plan.reads_all else target.placed
    at = Alive(plan.program, plan.grid, target.in_place, in_order)
    for number, op in enumerate(plan.ops):
        kept = {name for name, read in last.items() if read > number} | at.sums
        at.frees = frozenset(at.layouts.keys() - kept)
        placed = replace(op.place(at), frees=at.frees)
        for read in placed.inputs:
            at.convert(read)
        at.make(placed)
        at.end(placed)
        ops.append(placed)
    if target.panel:
        whole = choose_layouts(replace(plan, target=replace(target, panel=0))).ops
        ops = [_as_in_memory(op, own, target) for op, own in zip(ops, whole, strict=True)]
    return replace(plan, ops=tuple(ops))


def _as_in_memory(op: Op, own: Op, target: Target) -> Op:
    """An operation on disk that rounds where it would in memory, so that the bits are the same."""
    loaded = any(read.layout == "loaded" for read in own.inputs)
    travels = loaded and own.onto is not None and not target.in_place
    return replace(op, scales=own.scales, adds_last=travels)


def with_placed(plan: Plan, node_types: Collection[str]) -> Plan:
    """The plan for features of some node types that are in order from the start."""
    target = replace(plan.target, placed=frozenset(node_types))
    return choose_layouts(replace(plan, target=target))


def mark_phases(plan: Plan) -> Plan:
    """Number the phase of each operation, from 0.

    One begins where an operation needs rows of other nodes, or a statistic. The others compute each
    row from that row alone, so they can run for any rows, in any blocks. Only tensors that later
    phases read (:meth:`Plan.kept_after`) have to stay.
    """
    begins = [int(at > 0 and op.reach is not Reach.ROW) for at, op in enumerate(plan.ops)]
    return replace(plan, phases=tuple(accumulate(begins)))


def check(plan: Plan) -> Plan:
    """Of every plan: each step is in one operation, in order, and reads what is there by then."""
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
