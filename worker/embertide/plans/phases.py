"""Where an operation needs rows of other nodes, or a statistic: there a phase ends and one begins.

Within a phase every row depends on itself alone, but for what the phase begins with: it can be
computed for any rows, in any blocks. What later phases read (:meth:`Plan.kept_after`) is all that
has to stay.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from embertide.plans.plan import Plan
from embertide.steps.reach import Reach


def mark_phases(plan: Plan) -> Plan:
    """Number the phase of each operation, from 0."""
    begins = [int(at > 0 and op.reach is not Reach.ROW) for at, op in enumerate(plan.ops)]
    return replace(plan, phases=tuple(accumulate(begins)))
