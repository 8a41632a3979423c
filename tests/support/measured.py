"""Bytes of tensors that are alive while code runs."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Measured(TorchDispatchMode):
    """Bytes of the tensors that are alive, and the most that ever were."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage())
        return made

    def leave_out(self, tensor: torch.Tensor) -> None:
        """It is elsewhere."""
        storage = tensor.untyped_storage()
        self._note(storage)
        self.alive -= self._sizes[storage._cdata]
        self._sizes[storage._cdata] = 0

    def _note(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self._sizes:
            self._sizes[storage._cdata] = storage.nbytes()
            self.alive += storage.nbytes()
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self._gone, storage._cdata)

    def _gone(self, at: int) -> None:
        self.alive -= self._sizes.pop(at)
