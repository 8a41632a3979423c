"""Which module is running: sums within one call of a module read one layer graph."""

from __future__ import annotations

from typing import Any

from torch import nn


class Scopes:
    """The calls of modules that are under way."""

    def __init__(self) -> None:
        self._stack: list[tuple[str, str, str]] = []
        self._calls = 0

    def watch(self, path: str, module: nn.Module) -> list[Any]:
        """Note when a module starts and ends; returns what removes the hooks again."""

        def start(one: nn.Module, _args: Any) -> None:
            self._calls += 1
            self._stack.append((f"{path}#{self._calls}", path, type(one).__name__))

        def end(_one: nn.Module, _args: Any, _result: Any) -> None:
            self._stack.pop()

        return [module.register_forward_pre_hook(start), module.register_forward_hook(end)]

    def current(self, module: nn.Module | None = None) -> tuple[str, str, str]:
        """A name of the innermost call, the module's path and its class."""
        if not self._stack:
            return "forward", "", "" if module is None else type(module).__name__
        return self._stack[-1]
