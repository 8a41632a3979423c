"""``python -m embertide.pod work|plan|look|push``, the entry point of the worker image."""

from __future__ import annotations

import os
import sys

from embertide.launch.signals import StopRequest
from embertide.spec import naming


def main() -> None:
    """Run one of them and leave at once, whatever threads are still at."""
    stop = StopRequest.on_signals()
    os.environ[naming.ENV_IN_POD] = "1"
    command = sys.argv[1:]
    code = 2
    if command == ["work"]:
        from embertide.pod.work import work

        code = work(stop)
    elif command == ["plan"]:
        from embertide.pod.plan import plan

        code = plan(stop)
    elif command == ["look"]:
        from embertide.pod.look import look

        code = look(stop)
    elif command == ["push"]:
        from embertide.pod.push import push

        code = push(stop)
    else:
        print("usage: python -m embertide.pod work|plan|look|push", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    # Libraries' threads may be waiting for other pods; they are not waited for.
    os._exit(code)


if __name__ == "__main__":
    main()
