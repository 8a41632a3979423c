"""Which module is running: sums within one call of a module read one layer graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn


class Called(NamedTuple):
    """The layer that a call of a module belongs to.

    Attributes:
        name: of the layer, another one for each call.
        path: of the module that the layer is shown as.
        kind: its class.
    """

    name: str
    path: str
    kind: str


class Scopes:
    """The calls of modules that have not returned yet.

    Modules side by side in an ``nn.ModuleDict``, as relations' convolutions are, make one layer
    together: until one of them is called again, or another module holds them.
    """

    def __init__(self, module: nn.Module, typed: bool) -> None:
        self._stack: list[Called] = []
        self._calls = 0
        self._dicts = {
            path
            for path, part in module.named_modules()
            if typed and isinstance(part, nn.ModuleDict)
        }
        self._together: dict[str, tuple[int, set[str]]] = {}

    def watch(self, path: str, module: nn.Module) -> list[Any]:
        """Note when a module starts and ends; returns what removes the hooks again."""

        def start(part: nn.Module, _args: Any) -> None:
            self._stack.append(self.called(path, part))

        def end(_part: nn.Module, _args: Any, _result: Any) -> None:
            self._stack.pop()

        return [module.register_forward_pre_hook(start), module.register_forward_hook(end)]

    @contextmanager
    def within(self, called: Called) -> Iterator[None]:
        """A call that no hook sees."""
        self._stack.append(called)
        try:
            yield
        finally:
            self._stack.pop()

    def called(self, path: str, module: nn.Module) -> Called:
        """A new call of a module: a separate layer, or one with the modules beside it."""
        self._calls += 1
        parent = path.rpartition(".")[0]
        if parent not in self._dicts:
            return Called(f"{path}#{self._calls}", path, type(module).__name__)
        holder = self.current()
        key = f"{holder.name}/{parent}"
        number, members = self._together.get(key, (0, {path}))
        if path in members:
            number, members = self._calls, set()
        members.add(path)
        self._together[key] = number, members
        shown = (holder.path, holder.kind) if holder.path else (parent, type(module).__name__)
        return Called(f"{key}#{number}", *shown)

    def current(self) -> Called:
        """The innermost call."""
        return self._stack[-1] if self._stack else Called("forward", "", "")

    def names(self) -> tuple[str, ...]:
        """The names of all calls that have not returned yet."""
        return tuple(called.name for called in self._stack)
