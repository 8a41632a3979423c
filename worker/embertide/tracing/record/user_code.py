"""Where in the user's files something happens, for messages."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType, TracebackType

from embertide import _version
from embertide.errors import ModelError

_OURS = str(Path(_version.__file__).parent)
_CALLS_FORWARD = str(Path(_version.__file__).parent / "tracing" / "forward" / "subject.py")
"""Beyond it is who exports, not what the module does."""
_INSTALLED = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
_STANDARD = sysconfig.get_path("stdlib")


def here() -> str:
    """``file:line`` of the innermost line of the user's code that led to this call.

    Where no file of the user's is on the way, as in a model of a library, the library's line.
    """
    frame: FrameType | None = sys._getframe(1)
    library = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not _is_ours(name):
            place = f"{name}:{frame.f_lineno}"
            if not _is_library(name):
                return place
            library = library or (place if _is_models(name) else "")
        elif library and name == _CALLS_FORWARD:
            return library
        frame = frame.f_back
    return library


def place_of(trace: TracebackType | None) -> str:
    """``file:line`` of the innermost line of the user's code in a traceback; "" without one."""
    frames = [f for f in traceback.extract_tb(trace) if not _is_ours(f.filename)]
    mine = [f for f in frames if not _is_library(f.filename)]
    last = (mine or frames)[-1:]
    return f"{last[0].filename}:{last[0].lineno}" if last else ""


def refuse(where: str, what: str) -> ModelError:
    """The error that names a line of the user's code, what is wrong there and what to do."""
    return ModelError(f"{where}: {what}" if where else what)


def is_users(name: str) -> bool:
    """Whether a file is the user's, and not a library's or made by one."""
    return not (_is_ours(name) or _is_library(name) or _is_models(name))


def _is_ours(name: str) -> bool:
    return name.startswith(_OURS)


def _is_library(name: str) -> bool:
    return name.startswith((*_INSTALLED, _STANDARD, "<"))


def _is_models(name: str) -> bool:
    """Libraries of models, whose lines tell a reader more than torch's own."""
    return "torch_geometric" in name or "/dgl/" in name
