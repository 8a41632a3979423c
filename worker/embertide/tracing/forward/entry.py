"""What of a user's module is called: the module in its wrappers, one of its parts, or a method."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from embertide.errors import ModelError
from embertide.tracing.forward.hooks import refuse_left_out

_WRAPPERS = ("DataParallel", "DistributedDataParallel", "AveragedModel")
"""Classes that keep the module itself as ``module``."""
_ENCODERS = ("GAE", "VGAE", "ARGA", "ARGVA")
"""PyG's autoencoders, whose embeddings are those of ``encode``."""


def unwrapped(module: nn.Module) -> nn.Module:
    """The module within ``torch.compile``, DataParallel and the like.

    Raises:
        ModelError: it is scripted, so that none of its Python code is there, or what wraps it has
            hooks.
    """
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in _WRAPPERS:
            inner = getattr(module, "module", None)
        if not isinstance(inner, nn.Module):
            break
        refuse_left_out(module)
        module = inner
    if isinstance(module, torch.jit.ScriptModule):
        name = getattr(module, "original_name", "")
        raise ModelError(
            f"the module {name} is scripted or traced by torch.jit, so that its Python code is not"
            " there to be recorded; give the class that it was made of, with the weights of"
            " torch.jit.load(file).state_dict()"
        )
    _refuse_scripted_parts(module)
    return module


def _refuse_scripted_parts(module: nn.Module) -> None:
    """Refuse a module of which a part is scripted; names the first."""
    for path, part in module.named_modules():
        if not isinstance(part, torch.jit.ScriptModule):
            continue
        name = getattr(part, "original_name", "")
        raise ModelError(
            f"{type(module).__name__}.{path} ({name}) is scripted or traced by torch.jit, so that"
            f" its Python code is not there to be recorded; put {name} itself in its place, whose"
            " weights have the same names"
        )


def part_of(module: nn.Module, path: str, where: str) -> nn.Module:
    """A module's part or method at a dotted path; a method takes the place of its ``forward``.

    Args:
        where: the file and the name of the module, for messages.

    Raises:
        ModelError: there is neither.
    """
    part = unwrapped(module)
    for name in path.split("."):
        attribute = getattr(part, name, None)
        if isinstance(attribute, nn.Module):
            part = unwrapped(attribute)
        elif getattr(attribute, "__self__", None) is part and path.endswith(name):
            part.forward = attribute if name == "forward" else Entry(part, name)
        else:
            raise ModelError(
                f"{where} has no method or module {name}"
                f"{f' (of {path})' if '.' in path else ''}; write FILE.py:NAME.METHOD, or"
                " FILE.py:NAME.PART.METHOD"
            )
    return part


def with_encoder(module: nn.Module) -> nn.Module:
    """The module to call for embeddings, in place of one of PyG's that is made of an encoder.

    GAE, VGAE and their adversarial kinds give those of ``encode``; DeepGraphInfomax those of its
    encoder. All others are called as they are.
    """
    if "forward" in vars(module):
        return module
    kinds = {kind.__name__ for kind in type(module).__mro__ if _is_pygs(kind)}
    encoder = getattr(module, "encoder", None)
    if not isinstance(encoder, nn.Module):
        return module
    if "DeepGraphInfomax" in kinds and _is_pygs_own(module, "forward"):
        refuse_left_out(module)
        return encoder
    if kinds.intersection(_ENCODERS) and _is_pygs_own(module, "forward"):
        module.forward = Entry(module, "encode")
    return module


def _is_pygs(kind: type) -> bool:
    return kind.__module__.startswith("torch_geometric.")


def _is_pygs_own(module: nn.Module, name: str) -> bool:
    """Whether a method is PyG's, and not one that a user's class has in its place."""
    owner = next(kind for kind in type(module).__mro__ if name in vars(kind))
    return _is_pygs(owner)


class Entry:
    """In place of a module's ``forward``: one of its methods.

    What takes ``*args`` alone passes them on to the encoder, whose arguments they are then.
    """

    def __init__(self, module: nn.Module, method: str) -> None:
        self.module, self.method = module, method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the method gives."""
        return getattr(self.module, self.method)(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        own = inspect.signature(getattr(self.module, self.method))
        named = [name for name, parameter in own.parameters.items() if parameter.kind not in _STARS]
        encoder = getattr(self.module, "encoder", None)
        if not named and isinstance(encoder, nn.Module):
            return inspect.signature(encoder.forward)
        return own


_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
