"""Everything a worker needs, imported at once: what the fork server does first.

Without the garbage collector, which would look through every object over and over, it takes a
tenth less time. Frozen, the objects' pages stay shared with the processes that are forked.

torch is set to ask for huge pages: tensors of a run are large, and their first touch costs a fifth
of the time then. Where the system has none, nothing changes. Large arrays go back to the system as
they are freed.
"""

# ruff: noqa: E402, F401  # imported for others, after what comes first

import gc
import os

from embertide.launch.bootstrap.fork_server import HUGE_PAGES

gc.disable()
os.environ.setdefault(HUGE_PAGES, "1")

# numpy imports it the first time that unique values are asked for.
import numpy.ma

import embertide.engine.planning.estimate
import embertide.launch.worker
from embertide.facts.telemetry.memory import return_large_arrays

return_large_arrays()
gc.freeze()
gc.enable()
