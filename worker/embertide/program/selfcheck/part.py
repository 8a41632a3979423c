"""Checks operations that are run for some nodes alone, whose rows have all their edges or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from embertide.grid import RowRanges
from embertide.program.plans.plan import Plan
from embertide.program.selfcheck.checker import Checker
from embertide.program.selfcheck.some import Complete


def check_some(
    checker: Checker,
    plan: Plan,
    ranges: Mapping[str, RowRanges],
    complete: Complete,
    names: Mapping[str, Tensor],
) -> Checker:
    """Checks a plan that is run for some nodes; what it finds is part of what ``checker`` does.

    Args:
        ranges: of these nodes.
        names: node type -> [n] the dense id in the whole graph of each.
    """

    def name_of(node_type: str, node: int) -> str:
        return checker.name_of(node_type, int(names[node_type][node]))

    part = replace(
        checker,
        plan=plan,
        ranges=ranges,
        complete=complete,
        name_of=name_of,
        seconds=0.0,
        parts=[],
        _edges={},
        _out={},
        _counted=set(),
        _in_progress=[],
        _seen={},
        _tallies=[],
        _skipped=[],
    )
    checker.parts.append(part)
    return part
