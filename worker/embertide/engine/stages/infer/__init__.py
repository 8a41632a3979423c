"""The layers: a program's steps, in order, lowered to the distributed primitives.

==========  ===============================================================================
module      what it does
==========  ===============================================================================
drive       every way to run as one: what is wanted, what is there, what is kept
loop        the only loop over operations
excerpt     some nodes of each type, numbered in their order
excerpts    parts that are run for these alone
overlay     rows that were kept, and over them those that were computed
store       where rows are that a part begins with
asked       rows that are asked for, and what they are made of
base        the rows that a version has kept
stale       rows that differ from the base's
tolerance   rows that move by little stay
==========  ===============================================================================
"""

from embertide.engine.stages.infer.asked import Chosen, OverKept, check_over_kept, sealed_end
from embertide.engine.stages.infer.base import Refreshing
from embertide.engine.stages.infer.drive import EVERYTHING, Request, infer, infer_over_kept
from embertide.engine.stages.infer.keeping import Keeping
from embertide.engine.stages.infer.loop import Arrangement, Engine, arrange
from embertide.engine.stages.infer.store import KeptRows
from embertide.program.steps.execution import Graphs

__all__ = [
    "EVERYTHING",
    "Arrangement",
    "Chosen",
    "Engine",
    "Graphs",
    "Keeping",
    "KeptRows",
    "OverKept",
    "Refreshing",
    "Request",
    "arrange",
    "check_over_kept",
    "infer",
    "infer_over_kept",
    "sealed_end",
]
