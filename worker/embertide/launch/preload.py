"""Everything a worker needs, imported at once: what the fork server does first.

Without the garbage collector, which would look through every object over and over, it takes a
tenth less time. Frozen, the objects' pages stay shared with the processes that are forked.
"""

# ruff: noqa: E402, F401  # imported for others, after what comes first

import gc

gc.disable()

import embertide.launch.worker
import embertide.planning.estimate

gc.freeze()
gc.enable()
