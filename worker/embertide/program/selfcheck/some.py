"""Rows that a check draws where some have their edges and the others none; and joined results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from embertide.facts.telemetry.self_check import SelfCheck
from embertide.grid import RowRanges
from embertide.program.selfcheck.draw import Nodes
from embertide.program.selfcheck.tally import worst_of

Complete = Mapping[tuple[int, str], Tensor]
"""Layer and relation -> [N] bool, the rows that have their edges; others have none."""


def complete_rows(
    complete: Complete | None, graphs: Sequence[tuple[int, str]], nodes: int
) -> Nodes | None:
    """Ascending rows that have their edges of all of some layer graphs; None: all rows do."""
    if complete is None or not graphs:
        return None
    rows = torch.ones(nodes, dtype=torch.bool)
    for key in graphs:
        rows = rows & complete.get(key, torch.zeros_like(rows))
    return rows.nonzero().squeeze(1).numpy()


def ours_of(drawn: Nodes, ranges: RowRanges, rank: int) -> Nodes:
    """The drawn nodes of our sub-range, in the order in which they were drawn."""
    first, last = ranges.worker(rank)
    return drawn[(drawn >= first) & (drawn < last)]


def join_checks(checks: Sequence[SelfCheck]) -> SelfCheck:
    """What the whole and its parts have found."""
    return replace(
        checks[0],
        seconds=sum(check.seconds for check in checks),
        checked=[rows for check in checks for rows in check.checked],
        skipped=list(dict.fromkeys(why for check in checks for why in check.skipped)),
        faults=worst_of(fault for check in checks for fault in check.faults),
        overflows=worst_of(fault for check in checks for fault in check.overflows),
    )
