"""Starts real commands quickly: imports everything once, forks a process for every command.

Each runs in a session of its own, through the entry point that is installed, or as ``python -m``
runs a module, and ends as the interpreter ends, but for objects, which are left to the system: to
take apart all that was imported takes half a second. Its arguments are further modules to import
first.
Reads one JSON request a line, to start a command or to say how one ended;
answers with its process id, or with its exit code.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import resource
import runpy
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tests.support.fork_helpers import fork_helpers


def main() -> None:
    given = set(os.environ)
    import boto3  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    import embertide.cli.app
    import embertide.launch.bootstrap.preload
    import embertide.launch.local
    import embertide.pod.__main__
    import embertide.pod.plan
    import embertide.pod.work

    for name in sys.argv[1:]:
        importlib.import_module(name)
    programs = {"embertide": embertide.cli.command, "embertide.pod": embertide.pod.__main__.main}
    # What an import sets, commands need as well.
    added = {name: value for name, value in os.environ.items() if name not in given}
    fork_helpers()
    for line in sys.stdin:
        request = json.loads(line)
        if "ended" in request:
            status = os.waitpid(request["ended"], 0)[1]
            print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)
            continue
        begun, begin = os.pipe()
        child = os.fork()
        if child == 0:
            _become(request, added)
            os.close(begin)
            os.close(begun)
            name = request["program"]
            _run(programs.get(name) or functools.partial(_module, name), request["argv"])
            return
        os.close(begin)
        os.read(begun, 1)  # until it has a session of its own
        os.close(begun)
        print(json.dumps(child), flush=True)


def _run(program: Callable[[], None], argv: list[str]) -> None:
    sys.argv = [sys.argv[0], *argv]
    try:
        program()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        _end(end.code or 0)
    _end(0)


def _end(code: int) -> NoReturn:
    """End as the interpreter does until it takes modules apart."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def _module(name: str) -> None:
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _become(request: dict[str, Any], added: dict[str, str]) -> None:
    """A process as a shell would start it."""
    os.setsid()
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = [(os.devnull, os.O_RDONLY), (request["stdout"], append), (request["stderr"], append)]
    for number, (name, mode) in enumerate(files):
        file = os.open(name, mode)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"] | added)
    tempfile.tempdir = None
    os.chdir(Path(request["folder"]))
    if request["file_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"],) * 2)


if __name__ == "__main__":
    main()
