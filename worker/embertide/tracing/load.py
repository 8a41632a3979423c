"""The user's module: their file imported, their class built, their weights put in.

This runs the user's code, on the user's machine; nothing of it reaches a worker.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from embertide.errors import EmbertideError, ModelError
from embertide.models.shapes import shape_of
from embertide.tracing.forward.entry import part_of
from embertide.tracing.record.user_code import place_of, refuse

_SHOWN = 8
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What torch.compile, FSDP and checkpoint wrappers put into the names of parameters."""


def build(target: str, init: Mapping[str, Any]) -> nn.Module:
    """The module that ``FILE.py:NAME`` makes of the arguments ``init``.

    With ``FILE.py:NAME.METHOD`` the method takes the place of ``forward``;
    ``FILE.py:NAME.PART.METHOD`` is a method of a part of it, such as an encoder.

    Raises:
        ModelError: there is no such file or name, the file cannot be imported, or what NAME
            gives is no module.
    """
    file, colon, name = target.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise ModelError(f"{target!r} names no module; write FILE.py:NAME, such as models.py:Net")
    source = Path(file)
    if not source.is_file():
        raise ModelError(f"{file}: no such file")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        name, _, path = name.partition(".")
        named = getattr(_import(source), name, None)
        if named is None:
            raise ModelError(f"{file} has no {name}; write FILE.py:NAME with a class of that file")
        module = named if isinstance(named, nn.Module) else _call(named, name, init)
    if not isinstance(module, nn.Module):
        raise ModelError(f"{file}: {name} gives a {type(module).__name__}, not a torch.nn.Module")
    return part_of(module, path, f"{file}: {name}") if path else module


def _import(path: Path) -> ModuleType:
    """Import a file by the name that it has in its own package, as its own imports expect."""
    # DGL, imported where none is named, writes one into the home directory and prints a message.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    path = path.resolve()
    root, names = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        root, names = root.parent, [root.name, *names]
    name = ".".join(names)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", "") or "").resolve() != path:
        raise ModelError(f"{path} cannot be imported as {name}, which is another module; rename it")
    try:
        return importlib.import_module(name)
    except EmbertideError:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise refuse(
            _syntax_place(error) or place_of(error.__traceback__),
            f"importing the file fails with {reason}; what trains belongs under"
            " if __name__ == '__main__'",
        ) from error


def _syntax_place(error: BaseException) -> str:
    return f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else ""


def _call(make: Any, name: str, init: Mapping[str, Any]) -> Any:
    try:
        return make(**init)
    except Exception as error:
        raise refuse(
            place_of(error.__traceback__),
            f"{name}({', '.join(f'{key}={value!r}' for key, value in init.items())}) fails with"
            f" {type(error).__name__}: {error}; give its arguments with --init",
        ) from error


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Put stored parameters in; names may have the prefix of whatever the module was part of.

    Raises:
        ModelError: with every parameter that is missing, unknown or of another shape, or where
            several prefixes have all of them.
    """
    expected = module.state_dict()
    stored = _own_names(tensors, list(expected), source)
    lines = [f"{name}: missing" for name in expected if name not in stored]
    lines += [f"{name}: unknown to the module" for name in stored if name not in expected]
    lines += [
        f"{name}: {shape_of(stored[name])}, but the module has {shape_of(expected[name])}"
        for name in expected
        if name in stored and not _fits(stored[name], expected[name])
    ]
    if lines:
        more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        raise ModelError(
            f"{source} does not fit {type(module).__name__}:\n  "
            + "\n  ".join(lines[:_SHOWN] + more)
            + "\ngive the arguments that it was trained with by --init"
        )
    module.load_state_dict(stored)


def refuse_lazy(module: nn.Module) -> None:
    """Refuse a module without weights that has parameters whose shapes only these give.

    Raises:
        ModelError: names the first of them.
    """
    lazy = [name for name, tensor in module.state_dict().items() if nn.parameter.is_lazy(tensor)]
    if lazy:
        raise ModelError(
            f"{type(module).__name__}.{lazy[0]} has no shape before weights are loaded; give them"
            " with --weights, or the columns of its input with --init"
        )


def _own_names(
    tensors: Mapping[str, Tensor], expected: Sequence[str], source: str
) -> dict[str, Tensor]:
    """Stored parameters by the module's own names, without those of other modules beside it."""
    if not expected or all(name in tensors for name in expected):
        return dict(tensors)
    plain = {_without_wrappers(name): tensor for name, tensor in tensors.items()}
    ends = [name for name in plain if f".{name}".endswith(f".{expected[0]}")]
    prefixes = [name.removesuffix(expected[0]) for name in ends]
    full = [prefix for prefix in prefixes if all(f"{prefix}{name}" in plain for name in expected)]
    if len(full) > 1 or len(plain) < len(tensors):
        where = f": under {', '.join(map(repr, full))}" if len(full) > 1 else ", compiled and not"
        raise ModelError(
            f"{source} holds the module several times{where}; save the one that is meant:"
            " torch.save(model.state_dict(), ...)"
        )
    prefix = full[0] if full else _common_prefix(plain)
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in plain.items()
        if name.startswith(prefix)
    }


def _without_wrappers(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _common_prefix(names: Collection[str]) -> str:
    """The ``module.`` of DataParallel, where all names have it."""
    return "module." if all(name.startswith("module.") for name in names) else ""


def _fits(stored: Tensor, expected: Tensor) -> bool:
    """Whether the shapes are equal; a lazy module takes the shape of what is loaded."""
    return nn.parameter.is_lazy(expected) or stored.shape == expected.shape
