"""The compiled kernels, where they could be built; everything else falls back to torch and numpy.

``lib`` is the extension module or None. Kernels live beside their torch reference, in modules of
:mod:`embertide.kernels` that call ``lib`` where it is there; nothing else imports it.
``EMBERTIDE_NATIVE=0`` in the environment leaves it out; a path loads another build, such as the one
with sanitizers.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

__all__ = ["describe", "done", "lib", "set_threads", "work_alone"]


_NAME = "embertide.kernels.native._native"
_CHOICE = os.environ.get("EMBERTIDE_NATIVE", "")


def _load() -> ModuleType | None:
    if _CHOICE == "0":
        return None
    if _CHOICE:
        return _load_file(_CHOICE)
    try:
        return importlib.import_module(_NAME)
    except ModuleNotFoundError:
        return None


def _load_file(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"EMBERTIDE_NATIVE={path}: not an extension module; unset it, or 0")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    return module


lib: Any = _load()


def set_threads(count: int) -> None:
    """Run the kernels on ``count`` threads, the caller's included."""
    if lib is not None:
        lib.set_threads(count)


def work_alone() -> None:
    """From now on run kernels that the calling thread calls on it alone."""
    if lib is not None:
        lib.work_alone()


def done() -> tuple[int, int]:
    """What the loops of this process have done: tasks, and non-zeros gone over; zeros on torch.

    Any thread may ask, also while a loop runs.
    """
    if lib is None:
        return 0, 0
    found: tuple[int, int] = lib.done()
    return found


def describe() -> str:
    """One line for reports: which kernels run, and why."""
    if lib is not None:
        return f"native ({lib.isa()}, {lib.threads()} threads)"
    if _CHOICE == "0":
        return "torch (EMBERTIDE_NATIVE=0)"
    return "torch (the native kernels are not built: install a C++20 compiler, then make setup)"
