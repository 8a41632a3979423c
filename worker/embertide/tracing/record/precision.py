"""The numbers that a module computes with while it is recorded and proved."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@contextmanager
def quiet() -> Iterator[None]:
    """No gradients, float64, no warnings of the libraries, one thread for the few rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _default(torch.float64), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)


def computing_in(dtype: torch.dtype) -> AbstractContextManager[Any]:
    """Within it ``forward`` computes in float64 and leaves it nowhere, or in float32 as trained."""
    return _InDoubles() if dtype is torch.float64 else _default(dtype)


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _InDoubles(TorchFunctionMode):
    """What becomes float32 stays, or becomes, float64: ``x.float()`` is exact as all else is."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is Tensor.float:
            func = Tensor.double
        elif func in (Tensor.to, Tensor.type):
            args = tuple(torch.float64 if value is torch.float32 else value for value in args)
            kwargs = {
                key: torch.float64 if value is torch.float32 else value
                for key, value in (kwargs or {}).items()
            }
        return func(*args, **(kwargs or {}))
