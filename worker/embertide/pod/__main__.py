"""``python -m embertide.pod work|plan``, the entry point of the worker image."""

from __future__ import annotations

import os
import signal
import sys


class Stop:
    """Whether we were asked to stop; a container's first process has to listen for that itself."""

    asked = False

    def ask(self, _number: int, _frame: object) -> None:
        """The signals' handler."""
        self.asked = True


def main() -> None:
    """Run one of the two and leave at once, whatever threads are still at."""
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop.ask)
    command = sys.argv[1:]
    code = 2
    if command == ["work"]:
        from embertide.pod.work import work

        code = work(stop)
    elif command == ["plan"]:
        from embertide.pod.plan import plan

        code = plan(stop)
    else:
        print("usage: python -m embertide.pod work|plan", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    # Libraries' threads may be waiting for other pods; nobody waits for them.
    os._exit(code)


if __name__ == "__main__":
    main()
