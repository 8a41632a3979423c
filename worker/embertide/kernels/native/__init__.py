"""The compiled kernels, where they could be built; everything else falls back to torch and numpy.

``lib`` is the extension module or None. Kernels live beside their torch reference, in modules of
:mod:`embertide.kernels` that call ``lib`` where it is there. No other package imports it: threads
are set in ``threads.py``, and ``describe.py`` shows which kernels run.
``EMBERTIDE_NATIVE=0`` in the environment leaves it out; a path loads another build, such as the one
with sanitizers.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

__all__ = ["describe", "lib"]

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


def describe() -> str:
    """One line for reports: which kernels run, and why."""
    if lib is not None:
        return f"native ({lib.isa()}, {lib.threads()} threads)"
    if _CHOICE == "0":
        return "torch (EMBERTIDE_NATIVE=0)"
    return "torch (the native kernels are not built: install a C++20 compiler, then make setup)"
