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
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from embertide.errors import ModelError
from embertide.io.readers.archives import Unread
from embertide.io.readers.recognise import FIRST_BYTES, PICKLE, other_kind

_STATE_KEYS = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "weights")
"""Under which trainers keep the state dict: Lightning, torch's tutorials, DeepSpeed and others."""
_ZIP = b"PK"
_SHOWN = 8
_NUMBERS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_OF_TRAINING = ("optim", "sched", "scaler", "grad")
"""Parts of keys under which tensors with the shapes of parameters are none of a model."""
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
_SCALES = ("scale", "zero", "SCB", "absmax")
SCALES = (
    "integers and float8 are weights only with their scale: save the state_dict of the module"
    " before it was quantised, or give the values, weight.float() * scale"
)
_PACKED = "._packed_params"
_CHOOSE = "name the one that is meant with --key of export, or key of model.yaml"


_KNOWN = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): torch._utils._rebuild_parameter,
    ("torch", "Size"): torch.Size,
}
"""All that a file may name: what tensors and state dicts are made of."""


class _TensorUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _KNOWN.get((module, name), Unread)


def load_checkpoint(data: bytes, source: str, key: str = "") -> dict[str, torch.Tensor]:
    """The state dict in a file of ``torch.save``, alone or under a key that trainers use.

    Args:
        key: where it is, see `at_key`; "" for the only one.

    Raises:
        ModelError: the file is damaged, holds no state dict, or several with other values.
    """
    loaded = _load(data, source)
    return at_key(loaded, key, source) if key else _state_dict(loaded, source)


def at_key(loaded: object, key: str, source: str) -> dict[str, torch.Tensor]:
    """The state dict under a key: dots between the keys of nested dicts, then a prefix of names.

    Raises:
        ModelError: there is none.
    """
    found: Any = loaded
    rest = key
    while rest:
        if isinstance(found, list | tuple):
            found = dict(enumerate(found))
        keys = [str(one) for one in found] if isinstance(found, Mapping) else []
        fit = [one for one in keys if rest == one or rest.startswith(f"{one}.")]
        below = [one for one in keys if one.startswith(f"{rest}.")]
        if not fit and not below and found is loaded and _known_keys(loaded):
            found = _state_dict(loaded, source)
        elif fit:
            first = max(fit, key=len)
            found = next(value for name, value in found.items() if str(name) == first)
            rest = rest[len(first) + 1 :]
        elif below:
            found = {str(name).removeprefix(f"{rest}."): found[name] for name in below}
            rest = ""
        else:
            there = ", ".join(keys[:_SHOWN]) or "no keys"
            raise ModelError(f"{source} has nothing under --key {key}; at {rest} there are {there}")
    return _state_dict(found, source)


def flaw_of(tensor: torch.Tensor) -> str:
    """What keeps a tensor from being a parameter; "" for numbers, finite or not."""
    if not _has_values(tensor):
        return "without values (device meta)" if tensor.is_meta else "sparse"
    return "" if tensor.dtype in _NUMBERS else str(tensor.dtype)


def refuse_flawed(
    name: str, tensor: torch.Tensor, source: str, beside: Iterable[str] = ()
) -> ModelError:
    """The refusal of a tensor that is no parameter, see `flaw_of`.

    Args:
        beside: names of the tensors that are stored with it, of which some may be its scale.
    """
    if not _has_values(tensor) or tensor.is_complex():
        cure = "store it dense, with its values; a complex number as two"
    else:
        owner = name[: name.rfind(".") + 1]
        of_owner = [one for one in beside if one.startswith(owner) and one != name]
        scales = [one for one in of_owner if any(mark in one[len(owner) :] for mark in _SCALES)]
        cure = SCALES + (f" (here perhaps {', '.join(scales[:2])})" if scales else "")
    return ModelError(
        f"{source}: {name} is {flaw_of(tensor)}, but parameters are float32, float64, float16 or"
        f" bfloat16. {cure[0].upper()}{cure[1:]}"
    )


def _has_values(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta


def is_other(held: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> bool:
    """Whether tensors may be other values of some parameters, such as averages of them.

    Statistics of batches may be missing. Names may lack their dots, and have others before them;
    those of a list are numbers.
    """
    params = {name: one for name, one in wanted.items() if not name.endswith(_STATISTICS)}
    shapes = Counter(tuple(one.shape) for one in held.values())
    lacking = Counter(tuple(one.shape) for one in params.values()) - shapes
    if not params or lacking or same_values(held, wanted):
        return False
    ends = [name.replace(".", "") for name in held]
    plain = [name.replace(".", "") for name in params]
    return all(one.isdigit() for one in ends) or all(
        any(end.endswith(one) for end in ends) for one in plain
    )


def same_values(held: Mapping[str, torch.Tensor], chosen: Mapping[str, torch.Tensor]) -> bool:
    """Whether two groups of tensors are the same, in their order."""
    return len(held) == len(chosen) and all(
        _has_values(a) and _has_values(b) and a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(held.values(), chosen.values(), strict=True)
    )


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


def _load(data: bytes, source: str) -> Any:
    refuse_other_weights(data, source)
    if _is_script(data):
        raise ModelError(
            f"{source} is TorchScript, a program with its weights; save these alone:"
            " torch.save(torch.jit.load(file).state_dict(), ...)"
        )
    with warnings.catch_warnings():
        # Of what is refused below: quantised and sparse tensors, other protocols of pickle.
        warnings.simplefilter("ignore")
        try:
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError):
            loaded = _load_tensors_only(data)
    if loaded is None or isinstance(loaded, Unread):
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
    parts = (loaded, *(loaded[key] for key in _STATE_KEYS if isinstance(loaded.get(key), Mapping)))
    packed = [str(name) for part in parts for name in part if _PACKED in str(name)]
    if packed:
        raise ModelError(
            f"{source}: {packed[0].partition(_PACKED)[0]} is quantised (torch.ao.quantization),"
            " which computes with integers; save the state_dict of the module before it was"
            " quantised"
        )
    inner = _known_keys(loaded)
    if inner:
        chosen = {str(name): value for name, value in loaded[inner[0]].items()}
        others = [
            place
            for place, held in _groups(loaded, ())
            if place != inner[0] and (place in inner or is_other(held, _without_prefix(chosen)))
        ]
        if others:
            raise ModelError(
                f"{source} holds several state_dicts:"
                f" {', '.join([inner[0], *others[:_SHOWN]])}; {_CHOOSE} ({inner[0]})"
            )
        return chosen
    places = [place for place, held in _groups(loaded, ()) if place and len(held) > 1]
    there = f"; tensors are under {', '.join(places[:_SHOWN])}" if places else ""
    other = [str(name) for name, value in loaded.items() if not isinstance(value, torch.Tensor)]
    raise ModelError(
        f"{source} holds more than parameters: {', '.join(other[:_SHOWN])}, and no state_dict"
        f" under {', '.join(_STATE_KEYS)}{there}; say where it is with --key of export or key of"
        " model.yaml, or save the state_dict itself: torch.save(model.state_dict(), ...)"
    )


def _known_keys(loaded: object) -> list[str]:
    """The keys of trainers under which there is a state dict."""
    if not isinstance(loaded, Mapping):
        return []
    return [key for key in _STATE_KEYS if loaded.get(key) and _is_state(loaded[key])]


def _is_state(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(item, torch.Tensor) for item in value.values()
    )


def _groups(
    value: object, path: tuple[str, ...], depth: int = 6
) -> Iterator[tuple[str, dict[str, torch.Tensor]]]:
    """Place and tensors of all dicts and lists in a file that hold some, but of the optimizer's."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    named = [(str(key), held) for key, held in items]
    tensors = {key: held for key, held in named if isinstance(held, torch.Tensor)}
    if tensors:
        yield ".".join(path), tensors
    for key, held in named:
        if depth and not any(word in key.lower() for word in _OF_TRAINING):
            yield from _groups(held, (*path, key), depth - 1)


def _without_prefix(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A state dict by names without the first parts that all of them share."""
    while len({name.partition(".")[0] for name in state}) == 1 and all("." in n for n in state):
        state = {name.partition(".")[2]: tensor for name, tensor in state.items()}
    return state
