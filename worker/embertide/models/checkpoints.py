"""State dicts out of what trainers save with ``torch.save``: nothing pickled is ever run.

Lightning and many scripts save a dictionary: a state dict under a known key, and beside it the
optimizer, hyperparameters and callbacks, of classes that may be anything. torch's own safe reader
refuses such a file whole. Here objects of unknown classes become empty ones: neither are their
classes imported, nor anything of theirs called.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch

from embertide.errors import ModelError
from embertide.readers.recognise import FIRST_BYTES, PICKLE, other_kind

_STATE_KEYS = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "weights")
"""Under which trainers keep the state dict: Lightning, torch's tutorials, DeepSpeed and others."""
_ZIP = b"PK"
_SHOWN = 8


class _Unread:
    """The place of an object whose class is not known; it takes whatever is put into it."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> _Unread:
        return super().__new__(cls)

    def __call__(self, *_args: Any, **_kwargs: Any) -> _Unread:
        return self

    def _pass_over(self, *_args: Any) -> None:
        pass

    __init__ = __setstate__ = __setitem__ = append = extend = add = _pass_over


_KNOWN = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): torch._utils._rebuild_parameter,
    ("torch", "Size"): torch.Size,
}
"""All that a file may name: what tensors and state dicts are made of."""


class _TensorUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _KNOWN.get((module, name), _Unread)


def load_checkpoint(data: bytes, source: str, key: str = "") -> dict[str, torch.Tensor]:
    """The state dict in a file of ``torch.save``, alone or under a key that trainers use.

    Args:
        key: where it is, with dots between the keys of nested dicts; "" for the only one.

    Raises:
        ModelError: the file is damaged, holds no state dict, or several.
    """
    loaded = _load(data, source)
    return _state_dict(_at_key(loaded, key, source) if key else loaded, source)


def refuse_other_weights(data: bytes, source: str) -> None:
    """Refuse what is known to be no file of tensors, such as a pointer of Git LFS.

    Raises:
        ModelError: says what it is.
    """
    other = other_kind(data[:FIRST_BYTES], "a file of tensors", "a zip archive", PICKLE)
    if other:
        raise ModelError(f"{source} {other}")


def load_values(data: bytes, source: str) -> Any:
    """What ``torch.save`` wrote: tensors, numbers and texts in lists, tuples and dicts.

    Raises:
        ModelError: the file is damaged, or holds objects that only its code could make.
    """
    refuse_other_weights(data, source)
    try:
        with warnings.catch_warnings():
            # Of other protocols of pickle, before it refuses what they hold.
            warnings.simplefilter("ignore")
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError):
        # Not torch's own words: they say how to trust the file and run its code.
        raise ModelError(
            f"{source} is damaged, or holds more than tensors in tuples and dicts, which cannot be"
            " read without running code from it; save tensors alone, such as"
            " torch.save((x, edge_index), ...)"
        ) from None


def _at_key(loaded: object, key: str, source: str) -> object:
    """What a file holds under a key, whose own dots may be part of it."""
    found: Any = loaded
    rest = key
    while rest:
        keys = [str(one) for one in found] if isinstance(found, Mapping) else []
        fit = [one for one in keys if rest == one or rest.startswith(f"{one}.")]
        if not fit:
            there = ", ".join(keys[:_SHOWN]) or "no keys"
            raise ModelError(f"{source} has nothing under --key {key}; at {rest} there are {there}")
        first = max(fit, key=len)
        found = next(value for name, value in found.items() if str(name) == first)
        rest = rest[len(first) + 1 :]
    return found


def _load(data: bytes, source: str) -> Any:
    if _is_script(data):
        raise ModelError(
            f"{source} is TorchScript, a program with its weights; save these alone:"
            " torch.save(torch.jit.load(file).state_dict(), ...)"
        )
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError):
        loaded = _load_tensors_only(data)
    if loaded is None or isinstance(loaded, _Unread):
        # Not torch's own words: they say how to trust the file and run its code.
        raise ModelError(
            f"{source} is damaged, or no state_dict that can be read without running code from"
            " it; save it with torch.save(model.state_dict(), ...), or as safetensors"
        )
    return loaded


def _is_script(data: bytes) -> bool:
    """Whether a file is TorchScript, a program that ``torch.load`` would load as such."""
    if not data.startswith(_ZIP):
        return False
    try:
        reader: Any = torch._C.PyTorchFileReader(io.BytesIO(data))
    except (RuntimeError, ValueError):
        return False  # damaged
    return bool(reader.has_record("constants.pkl"))


def _load_tensors_only(data: bytes) -> Any:
    """What a file holds, without all objects of unknown classes; None where it is damaged."""
    if not data.startswith(_ZIP):
        return None
    try:
        unpickler = SimpleNamespace(Unpickler=_TensorUnpickler, __name__=__name__)
        return torch.load(
            io.BytesIO(data), map_location="cpu", pickle_module=unpickler, weights_only=False
        )
    except Exception:
        return None


def _state_dict(loaded: object, source: str) -> dict[str, torch.Tensor]:
    if not isinstance(loaded, Mapping):
        raise ModelError(
            f"{source} holds a {type(loaded).__name__}, not a state_dict; save it with"
            " torch.save(model.state_dict(), ...)"
        )
    if _is_state(loaded):
        return {str(name): value for name, value in loaded.items()}
    inner = [key for key in _STATE_KEYS if loaded.get(key) and _is_state(loaded[key])]
    if len(inner) == 1:
        return {str(name): value for name, value in loaded[inner[0]].items()}
    if inner:
        raise ModelError(
            f"{source} holds several state_dicts: {', '.join(inner)}; name the one that is meant"
            " with --key of export, or save it alone: torch.save(model.state_dict(), ...)"
        )
    other = [str(name) for name, value in loaded.items() if not isinstance(value, torch.Tensor)]
    raise ModelError(
        f"{source} holds more than parameters: {', '.join(other[:_SHOWN])}, and no state_dict"
        f" under {', '.join(_STATE_KEYS)}; say where it is with --key of export, or save the"
        " state_dict itself: torch.save(model.state_dict(), ...)"
    )


def _is_state(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(item, torch.Tensor) for item in value.values()
    )
