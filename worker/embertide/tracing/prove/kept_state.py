"""What ``forward`` keeps from call to call, and random numbers that it draws.

A program does the same each time. So a module is called, everything that it changed of itself is
replaced by something else, and it is called again: what it reads of an earlier call shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from embertide.errors import ModelError
from embertide.tracing.forward.results import Returned

Place = tuple[str, str]
"""The path of a module and the name of its attribute or buffer."""
_MANY = 10**6
"""Added to numbers that were changed: a counter that was called so often."""


def check_kept(module: nn.Module, call: Callable[[], Any]) -> None:
    """Refuse a module whose result depends on earlier calls or on random numbers.

    Args:
        module: is changed.
        call: calls ``forward``, on the same graph each time.

    Raises:
        ModelError: it depends on them; names what is kept.
    """
    before, drawn = dict(_state(module)), _random_state()
    expected = call()
    if _random_state() != drawn:
        raise ModelError(
            f"{type(module).__name__}.forward draws random numbers in eval mode, or sets their"
            " seed; draw them once in __init__ and keep them as a buffer, or draw none in eval mode"
        )
    changed = [
        (place, value) for place, value in _state(module) if not _same(before.get(place), value)
    ]
    if not changed:
        return
    for (path, name), value in changed:
        setattr(module.get_submodule(path), name, _other(value))
    names = ", ".join(f"{path}.{name}".lstrip(".") for (path, name), _ in changed)
    try:
        differs = not _same(expected, call())
    except ModelError:
        differs = True
    if differs:
        raise ModelError(
            f"{type(module).__name__}.forward changes {names} and reads it in the next call, so"
            " that it gives something else when it is called again (a cache, a counter, running"
            " statistics); a program does the same each time: make it again from the arguments in"
            " each call, or leave it as it is in eval mode"
        )


_TORCHS = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
"""Attributes of every module that are looked at otherwise, or not at all."""


def _state(module: nn.Module) -> Iterator[tuple[Place, Any]]:
    """All numbers and tensors that modules have as attributes, but for parameters."""
    for path, part in module.named_modules():
        for name, value in (*vars(part).items(), *part._buffers.items()):
            if name not in _TORCHS and not name.endswith("_hooks"):
                yield (path, name), _copied(value)


def _copied(value: Any) -> Any:
    """The same numbers and tensors, which later changes leave as they are."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return _mapped(_copied, value)


def _other(value: Any) -> Any:
    """Something else of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + _MANY
    if isinstance(value, Tensor):
        return _other_tensor(value)
    return _mapped(_other, value)


def _other_tensor(value: Tensor) -> Tensor:
    if value.dtype is torch.bool:
        return ~value
    if value.dim() == 0:
        return value + _MANY
    if value.is_floating_point() and value.layout is torch.strided:
        g = torch.Generator().manual_seed(len(value))
        return torch.randn(value.shape, generator=g).to(value)
    return torch.zeros_like(value)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    if type(value) in (tuple, list):
        return type(value)(change(item) for item in value)
    if type(value) is dict:
        return {key: change(item) for key, item in value.items()}
    return value


def _same(left: Any, right: Any) -> bool:
    """Whether two states or results have the same numbers; other objects are not looked into."""
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        if left.layout is not torch.strided or right.layout is not torch.strided:
            return left.layout is right.layout and _same(left.to_dense(), right.to_dense())
        return left.shape == right.shape and torch.allclose(
            left.double(), right.double(), rtol=1e-12, atol=0, equal_nan=True
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, Returned) and isinstance(right, Returned):
        return (left.node_type, left.name) == (right.node_type, right.name) and _same(
            left.value, right.value
        )
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    return left == right if isinstance(left, (bool, int, float, str)) else True


def _random_state() -> tuple[Any, ...]:
    """The states of the random generators of torch, Python and numpy."""
    numpys: Any = np.random.get_state(legacy=False)
    of_numpy = numpys["state"]["key"].tolist(), numpys["state"]["pos"], numpys["has_gauss"]
    return torch.get_rng_state().tolist(), random.getstate(), of_numpy
