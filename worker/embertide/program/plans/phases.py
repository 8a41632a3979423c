"""A phase begins where an operation needs rows of other nodes, or a statistic.

The other operations of a phase compute each row from that row alone, so they can run for any rows,
in any blocks. Only tensors that later phases read (:meth:`Plan.kept_after`) have to stay.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from embertide.program.plans.plan import Plan
from embertide.program.steps.reach import Reach


def mark_phases(plan: Plan) -> Plan:
    """Number the phase of each operation, from 0."""
    begins = [int(at > 0 and op.reach is not Reach.ROW) for at, op in enumerate(plan.ops)]
    return replace(plan, phases=tuple(accumulate(begins)))
