"""multiprocessing's helpers as forks of the process that starts them.

multiprocessing starts its fork server and its resource tracker as new interpreters, and so does
every command: the server then imports torch again, which costs more than a small job. Forked from
a process that has imported the same, it does the same work, in a process of its own, at once.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import process, util


def fork_helpers() -> None:
    """From now on, in this process and its forks."""
    util.spawnv_passfds = _fork  # type: ignore[attr-defined]


def _fork(_interpreter: bytes, arguments: Sequence[str], handles: Sequence[int]) -> int:
    """As ``util.spawnv_passfds``: run the program that follows ``-c``; its process id."""
    begun, begin = os.pipe()
    helper = os.fork()
    if helper:
        os.close(begin)
        # A new interpreter never holds our files; until it has let go of them, a port of ours that
        # it inherited would stay taken after our end.
        os.read(begun, 1)
        os.close(begun)
        return helper
    status = 1
    try:
        _begin_again(handles)
        exec(arguments[arguments.index("-c") + 1], {"__name__": "__main__"})
        status = 0
    except SystemExit:
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _begin_again(handles: Sequence[int]) -> None:
    """Undo what a new interpreter would not have: open files, signal handlers, settings."""
    opened = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208 - not paths
    for number in opened - {0, 1, 2, *handles}:
        with suppress(OSError):  # the listing itself
            os.close(number)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    util._finalizer_registry.clear()  # type: ignore[attr-defined]
    process.current_process()._config.pop("tempdir", None)  # type: ignore[attr-defined]
