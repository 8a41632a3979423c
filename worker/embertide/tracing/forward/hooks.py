"""The user's hooks on modules.

Those around ``forward`` run in each call of a module and are recorded with it. Those within PyG's
``propagate`` are not, and those on what is not called are left out; both are refused by name. The
libraries' own, such as weight_norm's, are no matter of the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

from torch import nn

from embertide.errors import ModelError

_AROUND = ("_forward_pre_hooks", "_forward_hooks")
_OWN = ("torch", "torch_geometric", "dgl", "embertide")
_SHOWN = 3


class Hook(NamedTuple):
    """A function that a user has registered on a part of a module.

    Attributes:
        of: the part's path and class.
        attribute: of the part, which holds it.
    """

    of: str
    attribute: str
    call: Callable[..., Any]

    def __str__(self) -> str:
        call = self.call.func if isinstance(self.call, partial) else self.call
        name = getattr(call, "__qualname__", type(call).__name__)
        return f"hook {name} (register{self.attribute.removesuffix('s')}) of {self.of}"


def hooks_of(module: nn.Module, around: bool | None = None) -> Iterator[Hook]:
    """The user's hooks on a module and its parts.

    Args:
        around: whether they run around ``forward``, or within ``propagate``; None for both.
    """
    for path, part in module.named_modules():
        kind = type(part).__name__
        for attribute, hooks in vars(part).items():
            if not (attribute.endswith("_hooks") and "_forward_" in attribute):
                continue
            if around is None or around is (attribute in _AROUND):
                for call in hooks.values():
                    if _is_users(call):
                        yield Hook(f"{path} ({kind})" if path else kind, attribute, call)


def has_hooks(module: nn.Module) -> bool:
    """Whether a user has put hooks around a module's ``forward``, not its parts'."""
    return any(_is_users(call) for name in _AROUND for call in vars(module)[name].values())


def remove_hooks(module: nn.Module) -> None:
    """Take away a user's hooks around a module's ``forward``, not its parts'."""
    for name in _AROUND:
        hooks = vars(module)[name]
        for key in [key for key, call in hooks.items() if _is_users(call)]:
            del hooks[key]


def refuse_left_out(module: nn.Module) -> None:
    """Refuse hooks on a module of which only a part is exported.

    Raises:
        ModelError: names the first of them.
    """
    if has_hooks(module):
        hook = next(hooks_of(module, around=True))
        raise ModelError(
            f"{hook} would be left out, since what is exported is the module within; register it on"
            " that module, or remove it (handle.remove()) if it changes nothing"
        )


def refuse_unknown(module: nn.Module) -> None:
    """Refuse hooks that are not run while a module is recorded.

    Raises:
        ModelError: names the first of them.
    """
    hook = next(hooks_of(module, around=False), None)
    if hook is not None:
        raise ModelError(
            f"{hook} is not known here, since it runs within propagate; do what it does in forward,"
            " or in the convolution's message or update"
        )


def raising(module: nn.Module, trace: TracebackType | None) -> Hook | None:
    """The hook in which an error was raised."""
    codes = set()
    while trace is not None:
        codes.add(trace.tb_frame.f_code)
        trace = trace.tb_next
    return next((hook for hook in hooks_of(module) if _code_of(hook.call) in codes), None)


def suspects(module: nn.Module) -> str:
    """A line with hooks of parts that a failed proof may come from; "" without any."""
    found = [str(hook) for hook in hooks_of(module) if " (" in hook.of]
    more = [f"{len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return (
        f"\nMaybe not everywhere recorded: {'; '.join([*found[:_SHOWN], *more])}. Do in forward"
        " what they do."
        if found
        else ""
    )


def _is_users(call: Callable[..., Any]) -> bool:
    call = call.func if isinstance(call, partial) else call
    return str(getattr(call, "__module__", "")).partition(".")[0] not in _OWN


def _code_of(call: Callable[..., Any]) -> Any:
    call = call.func if isinstance(call, partial) else call
    return getattr(call if hasattr(call, "__code__") else type(call).__call__, "__code__", None)
