"""Every error ends here: a message, an exit code, and no traceback for users' mistakes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from embertide.cli.drawing import visible
from embertide.errors import EmbertideError, Interrupted, ManifestError

_DEBUG = "EMBERTIDE_DEBUG"
_WORKER_LIBRARIES = ("torch", "numpy", "pyarrow", "boto3", "safetensors", "psutil")
_EXTRAS = {
    "kubernetes": "operator",
    "lancedb": "lancedb",
    "psycopg": "pgvector",
    "pymilvus": "milvus",
    "qdrant_client": "qdrant",
}


@contextmanager
def error_exit(json_output: bool) -> Iterator[None]:
    """Turn what is raised inside into a message on stderr and the error's exit code.

    With ``json_output`` the error is also one JSON object on stdout. With EMBERTIDE_DEBUG set
    the traceback is shown instead of the message.
    """
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
        library = (error.name or "").split(".")[0]
        extra = "worker" if library in _WORKER_LIBRARIES else _EXTRAS.get(library)
        if extra is None:
            raise
        message = f"this command needs {error.name}: pip install 'embertide[{extra}]'"
        _leave(error, message, EmbertideError.exit_code, json_output)


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
