"""Every error ends here: a message, an exit code, and no traceback for users' mistakes."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from embertide.cli.drawing import visible
from embertide.errors import EmbertideError, Interrupted, ManifestError

_DEBUG = "EMBERTIDE_DEBUG"
_READS = ("versions", "neighbors", "diff", "rollback", "release", "discard", "report", "push")
_EXTRAS = {"submit": "submit", "logs": "submit"} | dict.fromkeys(_READS, "read")
"""What to install for a command; for the others ``worker``."""
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,]+)\])?.*\bextra == \W(\w+)")


@contextmanager
def error_exit(args: Sequence[str]) -> Iterator[None]:
    """Turn what is raised inside into a message on stderr and the error's exit code.

    With ``--json`` in the command line, ``args``, the error is also one JSON object on stdout. With
    EMBERTIDE_DEBUG set the traceback is shown instead of the message.
    """
    json_output = "--json" in args
    try:
        yield
    except EmbertideError as error:
        _leave(error, str(error), error.exit_code, json_output)
    except SystemExit as error:
        # The command line library catches Ctrl-C and exits without a message.
        if error.code == Interrupted.exit_code:
            _leave(Interrupted(), "interrupted", Interrupted.exit_code, json_output)
        raise
    except ModuleNotFoundError as error:
        extra = extra_for(error.name or "", *args[:1])
        if extra is None:
            raise
        message = f"this command needs {error.name}: pip install 'embertide[{extra}]'"
        wrong: EmbertideError | None = _wrong_manifest(args)
        _leave(
            wrong or error, str(wrong or message), (wrong or EmbertideError).exit_code, json_output
        )


def extra_for(module: str, command: str = "run") -> str | None:
    """The extra to install where a module is missing; None for a module that none of them has.

    It is that of the command where the module is in it, else the smallest that has the module.
    """
    from importlib.metadata import requires

    library = module.split(".")[0].lower().replace("_", "-")
    extras: dict[str, set[str]] = {}
    for requirement in requires("embertide") or ():
        if found := _REQUIREMENT.match(requirement):
            name, below, extra = found.groups()
            names = (
                {f"embertide[{one}]" for one in below.split(",")} if name == "embertide" else {name}
            )
            extras.setdefault(extra, set()).update(names)

    def contents(extra: str) -> set[str]:
        inner = [contents(one) for one in extras if f"embertide[{one}]" in extras[extra]]
        return extras[extra].union(*inner)

    having = sorted(
        (len(all_of), extra) for extra in extras if library in (all_of := contents(extra))
    )
    usual = _EXTRAS.get(command, "worker")
    if any(extra == usual for _, extra in having):
        return usual
    return having[0][1] if having else None


def _wrong_manifest(args: Sequence[str]) -> ManifestError | None:
    """What is wrong with the first manifest that the command line names and that is not there."""
    from pathlib import Path

    from embertide.spec.loading import read_file

    try:
        for name in args[1:]:
            if name.endswith((".yaml", ".yml")):
                read_file(Path(name))
    except ManifestError as error:
        return error
    return None


def _leave(error: BaseException, message: str, code: int, json_output: bool) -> None:
    if os.environ.get(_DEBUG):
        raise error
    if json_output:
        print(json.dumps(error_object(error, message, code)), flush=True)
    print(f"embertide: error: {visible(message)}", file=sys.stderr, flush=True)
    sys.exit(code)


def error_object(error: BaseException, message: str, code: int) -> dict[str, object]:
    """The error for machines; a manifest's problems are listed one by one."""
    described: dict[str, object] = {
        "event": "error",
        "error": type(error).__name__,
        "message": message,
        "exit_code": code,
        "permanent": isinstance(error, EmbertideError) and error.permanent,
    }
    if isinstance(error, ManifestError):
        described["problems"] = [{"path": p, "message": m} for p, m in error.problems]
    if isinstance(error, EmbertideError) and error.details is not None:
        described |= error.details
    return described


def exit_codes() -> list[tuple[int, str]]:
    """Every exit code with its meaning, from the tree of errors."""
    codes = {0: "Done.", EmbertideError.exit_code: "A failure of another kind."}
    for kind in EmbertideError.__subclasses__():
        codes[kind.exit_code] = (kind.__doc__ or "").split(";")[0].split("\n")[0].rstrip(".") + "."
    codes[2] = "The manifest or the command line is wrong."
    return sorted(codes.items())
