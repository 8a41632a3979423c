"""The ``embertide`` command: what it does first and last; :mod:`embertide.cli.app` has the words.

A run's imports take longer than anything else of a small one, so they begin in their own process
before ours has read its command line.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from embertide.cli.errors import error_exit

_HELP = frozenset({"-h", "--help"})
_MOST_CHARACTERS = 1 << 20
"""Of a manifest; of what is no manifest, either."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; leaves with an exit code that `--help` lists."""
    args = list(sys.argv[1:] if argv is None else argv)
    with error_exit(json_output="--json" in args), _imports_ahead(args):
        from embertide.cli.app import app

        app(args, prog_name="embertide")


def command() -> None:
    """As :func:`main`, in a process of its own.

    The interpreter's last act is to look for cycles among all that was ever imported, which takes a
    tenth of a second; frozen objects are left to the system. Where a user's file brought libraries
    along, they take leave themselves: some of their extensions (Triton's, by nanobind) report every
    object that is left.
    """
    if sys.argv[1:2] != ["export"]:
        atexit.register(gc.freeze)
    main()


def _imports_ahead(args: Sequence[str]) -> AbstractContextManager[None]:
    """The process in which a run's imports begin, if it is to be one."""
    if args[:1] != ["run"] or not _HELP.isdisjoint(args):
        return nullcontext()
    from embertide.launch.bootstrap.fork_server import fork_server, preloads

    return fork_server(*preloads(_named_in(args)), keep=False)


def _named_in(args: Sequence[str]) -> str:
    """The arguments, and what is in the files that they name: a look ahead at the manifest.

    What comes through a pipe is left to the command, since it can be read once.
    """
    found = list(args)
    for name in args:
        with suppress(OSError, ValueError):
            if Path(name).is_file():
                with Path(name).open() as file:
                    found.append(file.read(_MOST_CHARACTERS))
    return "\n".join(found)
