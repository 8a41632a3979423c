"""Being asked to stop: Ctrl-C, a supervisor's SIGTERM, a terminal that closes."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from embertide.errors import Interrupted

_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_IMPATIENCE_SECONDS = 5.0


class Stopped(KeyboardInterrupt):
    """A signal asked us to stop. No Exception: libraries catch those, also while importing."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.interrupted = Interrupted(f"stopped by {signal.Signals(number).name}")


@contextmanager
def interruptible() -> Iterator[None]:
    """Let signals that ask to stop end the block with Interrupted.

    Impatient repetitions are ignored, so that cleaning up is not disturbed. Signals that were
    ignored before, as by nohup, stay so. Only a main thread can do this.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = -math.inf

    def stop(number: int, _frame: object) -> None:
        nonlocal asked
        now = time.monotonic()
        if now - asked > _IMPATIENCE_SECONDS:
            asked = now
            raise Stopped(number)

    mine = [number for number in _STOP if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in mine}
    try:
        yield
    except Stopped as stopped:
        raise stopped.interrupted from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopRequest:
    """Whether a signal asked us to stop, for a main loop that looks now and then.

    A container's first process has to handle its signals itself: the system's default for it is
    to ignore them.
    """

    asked = False

    @classmethod
    def on_signals(cls) -> Self:
        """One that SIGTERM and SIGINT set."""
        request = cls()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, request._ask)
        return request

    def _ask(self, _number: int, _frame: object) -> None:
        self.asked = True
