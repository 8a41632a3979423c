"""The files that hold a model's parameters: one, or several that an index lists.

``model.safetensors.index.json``, as Hugging Face's libraries write it, says which file beside it
holds which parameter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from embertide.errors import ModelError
from embertide.models.weights import load_tensors
from embertide.readers.splits import map_objects

if TYPE_CHECKING:
    from embertide.storage.protocol import Storage

_INDEX = ".index.json"
_SHOWN = 8


@dataclass(frozen=True)
class WeightFiles:
    """Parameters by name, and the bytes of every file that they were read from."""

    tensors: dict[str, torch.Tensor]
    files: list[bytes]


def read_weights(storage: Storage, uri: str, key: str = "") -> WeightFiles:
    """The parameters at ``uri``: safetensors, a file of ``torch.save``, or an index of several.

    Args:
        key: where a file of ``torch.save`` has them, see
            :func:`embertide.models.checkpoints.load_checkpoint`.

    Raises:
        ObjectMissing: there is no such file, or one is missing that the index lists.
        ModelError: a file is damaged, holds something else than named tensors, or the index and
            its files differ.
    """
    data = storage.read(uri)
    if not uri.endswith(_INDEX):
        return WeightFiles(load_tensors(data, uri, key), [data])
    if key:
        raise ModelError(f"{uri} lists files by parameter and has no keys; leave --key out")
    places = _parse_index(data, uri)
    names = sorted(set(places.values()))
    folder = uri.rpartition("/")[0]
    files = map_objects([f"{folder}/{name}" for name in names], storage.read)
    tensors: dict[str, torch.Tensor] = {}
    for name, of_file in zip(names, files, strict=True):
        listed = {parameter for parameter, place in places.items() if place == name}
        loaded = load_tensors(of_file, f"{folder}/{name}")
        _refuse_differences(uri, name, listed, set(loaded))
        tensors |= loaded
    return WeightFiles(tensors, [data, *files])


def _parse_index(data: bytes, uri: str) -> dict[str, str]:
    """The file of each parameter."""
    try:
        held: Any = json.loads(data)
        places = held["weight_map"]
        right = bool(places) and all(_is_file_name(place) for place in places.values())
    except (ValueError, KeyError, TypeError, AttributeError):
        right = False
    if not right:
        raise ModelError(
            f"{uri} is no index of weights: it must be json with weight_map, the name of a file"
            " beside it for each parameter"
        )
    return {str(name): place for name, place in places.items()}


def _is_file_name(place: Any) -> bool:
    return isinstance(place, str) and place not in ("", ".", "..") and not {"/", "\\"} & {*place}


def _refuse_differences(uri: str, file: str, listed: set[str], loaded: set[str]) -> None:
    for lacking, what in ((listed - loaded, "lacks"), (loaded - listed, "also holds")):
        if lacking:
            names = ", ".join(sorted(lacking)[:_SHOWN])
            raise ModelError(
                f"{file} {what} {names}, against what {uri} says; copy all files of one save"
            )
