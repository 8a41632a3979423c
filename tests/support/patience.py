"""How long tests wait on a busy machine for what takes moments on a quiet one.

A wait ends as soon as its condition is true, so these limits cost time only where a test fails.
"""

from __future__ import annotations

WAIT_SECONDS = 300.0
"""Until a program has started or answers, or a condition is true."""
SOON_SECONDS = 30.0
"""For what must happen without waiting for a timeout of the product: as long as Kubernetes gives a
pod to end before it is killed."""
BUSY = 4.0
"""Times what a wait takes at most on a quiet machine."""
