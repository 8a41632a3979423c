"""Builds what later tests of a process need while its first tests run: a process beside them.

    python -m tests.support.builder kueue otelcol

Tests on the cluster mostly wait, so a build beside them costs the run little; a test that comes to
its turn first waits for the build's lock, outside of its time limit (``once.py``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

from tests.support.needs import provide

_STOP_SECONDS = 30


class Builder:
    """A process that builds, ended with :meth:`stop`; what it has compiled stays in Go's cache."""

    def __init__(self, names: Iterable[str]) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
        self._process = subprocess.Popen(
            ["nice", sys.executable, "-m", "tests.support.builder", *names],
            env=environment,
            start_new_session=True,
        )

    def wait(self, seconds: float) -> int:
        """The exit status, once all is built or has failed."""
        return self._process.wait(seconds)

    def stop(self) -> None:
        """End the process and the compilers that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, 15)
        self._process.wait(_STOP_SECONDS)


def main() -> None:
    """Build one after another; a failure is left to the test that needs it, which tries again."""
    for name in sys.argv[1:]:
        try:
            provide([name], lambda line: print(line, file=sys.stderr, flush=True))
        except RuntimeError as error:
            print(f"[build] {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
