"""The ``embertide`` command: how its process starts and ends; the commands are in `app`.

In a small run imports take longest, so they begin in another process before this one has read its
command line.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from embertide.cli.errors import error_exit

_whole_process = False
_HELP = frozenset({"-h", "--help"})
_MOST_CHARACTERS = 1 << 20
"""The most that is read of a file that an argument names, manifest or not."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; leaves with an exit code that `--help` lists."""
    args = list(sys.argv[1:] if argv is None else argv)
    with error_exit(args), _imports_ahead(args):
        from embertide.cli.app import app

        app(args, prog_name="embertide")


def command() -> None:
    """Run :func:`main` as the whole process.

    At its end the interpreter looks for cycles among all that was ever imported, which takes a
    tenth of a second; frozen objects are left to the system. Not after an export, where the user's
    file may have imported extensions (Triton's, by nanobind) that report every object that is left.
    """
    global _whole_process
    _whole_process = True
    if sys.argv[1:2] != ["export"]:
        atexit.register(gc.freeze)
    main()


def leave_imports() -> None:
    """Leave what a command has imported out of the collections that follow.

    Not where `main` is called in the process of a user, such as a notebook's, whose garbage would
    never be collected.
    """
    if _whole_process:
        gc.freeze()


def _imports_ahead(args: Sequence[str]) -> AbstractContextManager[None]:
    """The process in which a run's imports begin; none for other commands."""
    if args[:1] != ["run"] or not _HELP.isdisjoint(args):
        return nullcontext()
    from embertide.launch.bootstrap.fork_server import fork_server, preloads

    return fork_server(*preloads(_named_in(args)), keep=False)


def _named_in(args: Sequence[str]) -> str:
    """The arguments and the files that they name: the manifest, before it is parsed.

    A pipe is left to the command, since it can be read only once.
    """
    texts = list(args)
    for name in args:
        with suppress(OSError, ValueError):
            if Path(name).is_file():
                with Path(name).open() as file:
                    texts.append(file.read(_MOST_CHARACTERS))
    return "\n".join(texts)
