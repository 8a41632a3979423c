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

import torch
from torch import Tensor, nn

from embertide.errors import EmbertideError, ModelError
from embertide.models.checkpoints import flaw_of, is_other, refuse_flawed, same_values
from embertide.models.old_names import explain_old_names, merged_projections
from embertide.models.shapes import shape_of
from embertide.tracing.forward.entry import part_of
from embertide.tracing.record.user_code import place_of, refuse

_SHOWN = 8
_INDEX_TYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_LIBRARIES = ("torch", "torch_geometric", "dgl")
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

    Of parameters that are one tensor in the module one name is enough, as
    ``safetensors.torch.save_model`` has it, and no ``num_batches_tracked`` is needed.

    Raises:
        ModelError: with every parameter that is missing, unknown or of another shape, or where
            one is no floating-point number, or several prefixes have all of them.
    """
    expected = module.state_dict()
    needed = _needed(expected)
    tensors = merged_projections(tensors, expected)
    stored = _own_names(tensors, expected, needed, source)
    for names in needed:
        there = [name for name in names if name in stored]
        if there:
            _refuse_untied(there, stored, source)
            stored = dict.fromkeys(names, stored[there[0]]) | stored
    stored = {name: expected[name] for name in expected if _is_count(name)} | stored
    missing = [name for name in expected if name not in stored]
    left = {name: tensor for name, tensor in stored.items() if name not in expected}
    _refuse_types(stored, expected, missing, source)
    old = explain_old_names(missing, left)
    lines = [f"{name}: missing" for name in missing if name not in old.explained]
    lines += [f"{name}: unknown to the module" for name in left if name not in old.explained]
    lines += [
        f"{name}: {shape_of(stored[name])}, but the module has {shape_of(expected[name])}"
        for name in expected
        if name in stored and not _fits(stored[name], expected[name])
    ]
    if lines or old.lines:
        more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        init = ["give the arguments that it was trained with by --init"] if lines else []
        rows = (f"  {line}" for line in [*old.lines, *lines[:_SHOWN], *more])
        raise ModelError(
            "\n".join([f"{source} does not fit {type(module).__name__}:", *rows, *init])
        )
    module.load_state_dict(stored)


def refuse_types(module: nn.Module) -> None:
    """Refuse a module with parameters that are no floating-point numbers.

    Buffers may be integers or truth values, which ``forward`` indexes with or scales itself.

    Raises:
        ModelError: names the first of them, or the first part that is quantised.
    """
    kind = type(module).__name__
    for name, part in module.named_modules():
        if "quantized" in type(part).__module__.split("."):
            raise ModelError(
                f"{kind}.{name} is a quantised {type(part).__name__}, which computes with integers;"
                " export the module before it was quantised"
            )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        flaw = "" if nn.parameter.is_lazy(tensor) else flaw_of(tensor)
        if flaw and (isinstance(tensor, nn.Parameter) or not _is_index(module, name, tensor)):
            raise refuse_flawed(name, tensor, kind)


def _is_index(module: nn.Module, name: str, buffer: Tensor) -> bool:
    """Whether a buffer may hold integers: not in the place of a library's own parameter."""
    if buffer.is_quantized or not flaw_of(buffer) or buffer.dtype not in _INDEX_TYPES:
        return False
    owner, _, last = name.rpartition(".")
    library = type(module.get_submodule(owner)).__module__.partition(".")[0]
    return library not in _LIBRARIES or last not in ("weight", "bias")


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


def _needed(expected: Mapping[str, Tensor]) -> list[tuple[str, ...]]:
    """The names of each tensor of a module, of which a file must have one."""
    names: dict[object, list[str]] = {}
    for name, tensor in expected.items():
        placed = not nn.parameter.is_lazy(tensor) and tensor.layout is torch.strided
        if placed and not tensor.is_meta and tensor.numel():
            place: object = (tensor.data_ptr(), tensor.shape, tensor.stride())
        else:
            place = name
        names.setdefault(place, []).append(name)
    return [tuple(of) for of in names.values() if not _is_count(of[0])]


def _own_names(
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    needed: Sequence[tuple[str, ...]],
    source: str,
) -> dict[str, Tensor]:
    """Stored parameters by the module's own names, without those of other modules beside it."""

    def is_full(prefix: str, stored: Mapping[str, Tensor]) -> bool:
        return all(any(f"{prefix}{name}" in stored for name in names) for names in needed)

    if is_full("", tensors):
        unknown = {name: tensor for name, tensor in tensors.items() if name not in expected}
        _refuse_others(unknown, tensors, expected, source)
        return dict(tensors)
    plain = {_without_wrappers(name): tensor for name, tensor in tensors.items()}
    if len(plain) < len(tensors):
        raise ModelError(
            f"{source} holds the module several times, compiled and not; save the one that is"
            " meant: torch.save(model.state_dict(), ...)"
        )
    ends = [
        name.removesuffix(first)
        for name in plain
        for first in needed[0]
        if f".{name}".endswith(f".{first}")
    ]
    full = [prefix for prefix in dict.fromkeys(ends) if is_full(prefix, plain)]
    if len(full) > 1:
        raise _several(source, full)
    prefix = full[0] if full else _common_prefix(plain)
    own = {
        name.removeprefix(prefix): tensor
        for name, tensor in plain.items()
        if name.startswith(prefix)
    }
    others = {name: of for name, of in plain.items() if full and not name.startswith(prefix)}
    _refuse_others(others, own, expected, source, prefix)
    return own


def _refuse_others(
    others: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    source: str,
    prefix: str = "",
) -> None:
    """Refuse other values of the module's parameters beside them, such as averages.

    Args:
        others: stored parameters that are not the module's own.
        prefix: under which those are.
    """
    taken = {name: own[name] for name in expected if name in own}
    for part in dict.fromkeys(name.partition(".")[0] for name in others):
        held = {name: of for name, of in others.items() if name.startswith(f"{part}.")}
        if is_other(held, taken):
            raise _several(source, [prefix, f"{part}."])


def _several(source: str, prefixes: Sequence[str]) -> ModelError:
    where = ", ".join(map(repr, prefixes))
    return ModelError(
        f"{source} holds the module several times: under {where}; save the one that is meant:"
        f" torch.save(model.state_dict(), ...), or name it, as in --key {prefixes[-1][:-1]}"
    )


def _refuse_types(
    stored: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    missing: Sequence[str],
    source: str,
) -> None:
    """Refuse integers in the place of numbers, and what is not the same in the module's type."""
    owners = {name.rpartition(".")[0] for name in missing}
    for name, tensor in stored.items():
        own = expected.get(name)
        if own is None:
            # Such as qweight, where the module has weight.
            wanted = name.rpartition(".")[0] in owners
        else:
            wanted = nn.parameter.is_lazy(own) or not flaw_of(own)
        if wanted and flaw_of(tensor):
            raise refuse_flawed(name, tensor, source, stored)
        if own is not None and not wanted and not _is_exact(name, tensor, own.dtype):
            raise ModelError(
                f"{source}: {name} is {tensor.dtype}, but {own.dtype} in the module, which does not"
                " hold the same values; load the file that was saved of this module"
            )


def _refuse_untied(names: Sequence[str], stored: Mapping[str, Tensor], source: str) -> None:
    """Refuse several values of what is one tensor in the module."""
    for name in names[1:]:
        if not same_values({"": stored[names[0]]}, {"": stored[name]}):
            raise ModelError(
                f"{source}: {names[0]} and {name} are one tensor in the module, but differ here;"
                " give the module that was trained, which does not tie them"
            )


def _is_exact(name: str, tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether a type holds all values of a tensor that matter."""
    if tensor.dtype == dtype or _is_count(name):
        return True
    plain = tensor.layout is torch.strided and not (tensor.is_meta or tensor.is_quantized)
    return plain and torch.equal(tensor.to(dtype).to(tensor.dtype), tensor)


def _is_count(name: str) -> bool:
    """Whether a buffer counts batches, which inference has no use for."""
    return name.rpartition(".")[2] == "num_batches_tracked"


def _without_wrappers(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def _common_prefix(names: Collection[str]) -> str:
    """The ``module.`` of DataParallel, where all names have it."""
    return "module." if all(name.startswith("module.") for name in names) else ""


def _fits(stored: Tensor, expected: Tensor) -> bool:
    """Whether the shapes are equal; a lazy module takes the shape of what is loaded."""
    return nn.parameter.is_lazy(expected) or stored.shape == expected.shape
