"""What tests build or download once for a machine: by one process, and never during a test.

A build takes minutes on a new machine and may stand beside others, so a test whose time limit
covers one fails there and nowhere else. Tests therefore name what they need
(``pytest.mark.needs``), and get it before the first one begins; what a test did not name, it is
refused, on every machine.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

Say = Callable[[str], None]
_NAMED = "EMBERTIDE_TEST_NEEDS"
"""Environment variable: what the running test named, for this process and those it starts."""


def once(name: str, path: Path, make: Callable[[], None], takes: str, say: Say = print) -> Path:
    """``path``, which ``make`` creates whole or not at all where it is missing.

    One process makes it while others wait.

    Args:
        name: by which tests ask for it.
        takes: roughly how long making it takes on a new machine, for people to read.

    Raises:
        RuntimeError: a test is running that did not name it.
    """
    if "PYTEST_CURRENT_TEST" in os.environ and name not in named():
        raise RuntimeError(
            f"a test uses {name}, which may have to be built first, outside of any test's time"
            f" limit: mark the test with pytest.mark.needs({name!r})"
        )
    if not path.exists():
        with _exclusive(path.with_name(f"{name}.lock"), name, say):
            if not path.exists():
                say(f"[build] {name}: about {takes} on a new machine, once")
                started = time.monotonic()
                make()
                say(f"[build] {name}: done in {time.monotonic() - started:.0f} s")
    return path


def named() -> set[str]:
    """What the running test named."""
    return set(filter(None, os.environ.get(_NAMED, "").split(",")))


def name_needs(names: Iterable[str]) -> None:
    """Let the next test use these; they are there."""
    os.environ[_NAMED] = ",".join(sorted(names))


@contextmanager
def _exclusive(path: Path, name: str, say: Say) -> Iterator[None]:
    """Hold a lock file, which goes with the process that holds it, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"[build] {name}: waiting for another process that builds it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
