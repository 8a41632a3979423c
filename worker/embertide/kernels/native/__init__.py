"""The compiled kernels, where they could be built; everything else falls back to torch and numpy.

``lib`` is the extension module or None. Kernels live beside their torch reference, in modules of
:mod:`embertide.kernels` that call ``lib`` where it is there; nothing else imports it.
``EMBERTIDE_NATIVE=0`` in the environment leaves it out.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

__all__ = ["describe", "lib", "set_threads"]


def _load() -> ModuleType | None:
    if os.environ.get("EMBERTIDE_NATIVE") == "0":
        return None
    try:
        return importlib.import_module("embertide.kernels.native._native")
    except ModuleNotFoundError:
        return None


lib: Any = _load()


def set_threads(count: int) -> None:
    """Run the kernels on ``count`` threads, the caller's included."""
    if lib is not None:
        lib.set_threads(count)


def describe() -> str:
    """One line for reports: which kernels run, and why."""
    if lib is not None:
        return f"native ({lib.isa()}, {lib.threads()} threads)"
    if os.environ.get("EMBERTIDE_NATIVE") == "0":
        return "torch (EMBERTIDE_NATIVE=0)"
    return "torch (the native kernels are not built: install a C++20 compiler, then make setup)"
