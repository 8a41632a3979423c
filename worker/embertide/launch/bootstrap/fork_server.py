"""One process that imports torch and the pipeline once; all others that need them come from it.

The process that people and Kubernetes see stays small and answers at once: it lists inputs,
serves status and listens for signals, and never imports torch itself.

    python -m embertide...        no torch
    `-- fork server               imports everything, does nothing
        `-- a call, such as the launcher
            `-- workers
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import psutil

from embertide.errors import EmbertideError, OutputError, ProcessDied
from embertide.launch.bootstrap.process_tree import die_with_requester, end_tree
from embertide.launch.leftovers import keep_sockets_in_own_folder
from embertide.spec.schemes import named_in

PRELOAD = "embertide.launch.bootstrap.preload"
"""What the fork server has to import for a run."""
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""The variable that the server sets itself, which torch reads."""
_POLL_SECONDS = 0.001

_P = ParamSpec("_P")
_R = TypeVar("_R")


def preloads(manifest: str) -> tuple[str, ...]:
    """What the fork server has to import for the run of a manifest, given as any text.

    The clients of the stores that it names come first: each process would take half a second.
    """
    clients = (scheme.module for scheme in named_in(manifest) if not scheme.local)
    return (*clients, PRELOAD)


@contextmanager
def fork_server(*modules: str, keep: bool = True) -> Iterator[None]:
    """Start the fork server, which imports ``modules``; after an error, end it at once.

    It would end by itself, but not before it is done importing, and it holds our stderr.

    Args:
        keep: for this process's next run. A process that ends anyway had better end it: an
            interpreter with torch in it takes a tenth of a second to end by itself.
    """
    keep_sockets_in_own_folder()
    me = psutil.Process()
    multiprocessing.set_forkserver_preload(list(modules))
    # First, since it unblocks signals.
    resource_tracker.ensure_running()
    others = me.children()
    # Ctrl-C reaches every process of the terminal. The server and the processes it makes inherit
    # that it is blocked: we stop them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        multiprocessing.forkserver.ensure_running()
    except OSError as error:
        raise OutputError(
            f"no socket can be made in the temporary folder {tempfile.gettempdir()}: {error}; set"
            " TMPDIR to a shorter path with space"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        yield
    except BaseException:
        keep = False
        raise
    finally:
        if not keep:
            _kill(set(me.children()) - set(others))


def _kill(servers: Iterable[psutil.Process]) -> None:
    """Returns once they have ended: multiprocessing, whose children they are and stay, takes one
    that is still ending for one that serves, and the next run would ask it."""
    for server in servers:
        with suppress(psutil.NoSuchProcess):
            server.kill()
            while server.status() != psutil.STATUS_ZOMBIE or server.num_threads() > 1:
                time.sleep(_POLL_SECONDS)


def call(act: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """What ``act`` returns or raises in a new process of the fork server's.

    Whatever ends the waiting, that process and all it started are gone afterwards. Where it was
    killed, they end by themselves: see :func:`die_with_requester`.

    Raises:
        ProcessDied: it ended without an answer.
    """
    return _ask(_answer, act, *args, **kwargs)


def call_alone(act: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Like :func:`call`, of something that forks.

    It begins without a thread beside it, and calls :func:`die_with_requester` once it has forked.
    """
    return _ask(_answer_alone, act, *args, **kwargs)


def _ask(
    answer_in_process: Callable[..., None],
    act: Callable[_P, _R],
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _R:
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe(duplex=False)
    arguments = (theirs, dict(os.environ), act, args, kwargs)
    process = context.Process(target=answer_in_process, args=arguments)
    try:
        with _main_set_aside():
            process.start()
        theirs.close()
        # Its own processes hold the pipe too, so the pipe's end is not the process's.
        wait([ours, process.sentinel])
        answer = _received(ours)
        if answer is None:
            process.join()
            raise ProcessDied(f"the {act.__name__} process {_how_it_ended(process)}")
    finally:
        end_tree(process)
        ours.close()
    good, value = answer
    if not good:
        raise value
    result: _R = value
    return result


@contextmanager
def _main_set_aside() -> Iterator[None]:
    """Keep multiprocessing from running the program's script again in the new process.

    It needs nothing of it, and a script that calls us without a guard would start another run.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _answer(
    pipe: Connection,
    environment: dict[str, str],
    act: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """In the new process: do it and send the outcome."""
    die_with_requester()
    _answer_alone(pipe, environment, act, args, kwargs)


def _answer_alone(
    pipe: Connection,
    environment: dict[str, str],
    act: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    _set_environment(environment)
    try:
        answer = True, act(*args, **kwargs)
    except Exception as error:
        if not isinstance(error, EmbertideError):
            error.add_note(traceback.format_exc())
        answer = False, error
    pipe.send(answer)


def _set_environment(environment: dict[str, str]) -> None:
    """The caller's variables as they are now: since the server began, keys of stores may differ."""
    for name in os.environ.keys() - environment.keys() - {HUGE_PAGES}:
        del os.environ[name]
    os.environ.update(environment)


def _received(pipe: Connection) -> tuple[bool, Any] | None:
    try:
        answer: tuple[bool, Any] | None = pipe.recv() if pipe.poll() else None
    except EOFError:
        return None
    return answer


def _how_it_ended(process: BaseProcess) -> str:
    code = process.exitcode or 0
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"
