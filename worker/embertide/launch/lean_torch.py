"""torch without what a run never uses, which takes a third of the time of importing it.

``torch._meta_registrations`` tells of every operator which shapes it returns, without computing
anything: for torch.compile, torch.export and fake tensors, none of which a run has. Its import
goes through all operators and their decompositions.
"""

from __future__ import annotations

import sys
from types import ModuleType

_LEFT_OUT = "torch._meta_registrations"


def import_torch() -> None:
    """Import torch, without the part that a run never uses; a later import of that finds it."""
    if "torch" in sys.modules:
        return
    sys.modules[_LEFT_OUT] = ModuleType(_LEFT_OUT)
    try:
        import torch
    finally:
        del sys.modules[_LEFT_OUT]
    vars(torch).pop(_LEFT_OUT.removeprefix("torch."), None)
