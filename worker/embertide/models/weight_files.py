"""The files that hold a model's parameters: one, or several that an index lists.

``model.safetensors.index.json``, as Hugging Face's libraries write it, says which file beside it
holds which parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from embertide.errors import ModelError
from embertide.io.readers.splits import map_objects
from embertide.models.checkpoints import at_key, load_checkpoint
from embertide.models.files import INDEX, parse_index
from embertide.models.weights import load_tensors, shared_names

if TYPE_CHECKING:
    from embertide.io.storage.protocol import Storage

_SHOWN = 8


@dataclass(frozen=True)
class WeightFiles:
    """Parameters by name, and the bytes of every file that they were read from."""

    tensors: dict[str, torch.Tensor]
    files: list[bytes]


def read_weights(storage: Storage, uri: str, key: str = "") -> WeightFiles:
    """The parameters at ``uri``: safetensors, a file of ``torch.save``, or an index of several.

    Args:
        key: where they are, see :func:`embertide.models.checkpoints.at_key`.

    Raises:
        ObjectMissing: there is no such file, or one is missing that the index lists.
        ModelError: a file is damaged, holds something else than named tensors, or the index and
            its files differ.
    """
    data = storage.read(uri)
    if uri.endswith(INDEX):
        tensors, files = _read_listed(storage, uri, parse_index(data, uri))
    elif uri.endswith(".safetensors"):
        tensors, files = load_tensors(data, uri), {uri: data}
    else:
        return WeightFiles(load_checkpoint(data, uri, key), [data])
    for file, held in files.items():
        for name, kept in shared_names(held, file).items():
            tensors.setdefault(name, tensors[kept])
    used = at_key(tensors, key, uri) if key else tensors
    return WeightFiles(used, [data, *(of for file, of in files.items() if file != uri)])


def _read_listed(
    storage: Storage, uri: str, places: dict[str, str]
) -> tuple[dict[str, torch.Tensor], dict[str, bytes]]:
    """The parameters of all files of an index, and the files by URI."""
    folder = uri.rpartition("/")[0]
    names = sorted(set(places.values()))
    files = map_objects([f"{folder}/{name}" for name in names], storage.read)
    tensors: dict[str, torch.Tensor] = {}
    for name, of_file in zip(names, files, strict=True):
        listed = {parameter for parameter, place in places.items() if place == name}
        loaded = load_tensors(of_file, f"{folder}/{name}")
        _refuse_differences(uri, name, listed, set(loaded))
        tensors |= loaded
    return tensors, dict(zip(names, files, strict=True))


def _refuse_differences(uri: str, file: str, listed: set[str], loaded: set[str]) -> None:
    for lacking, what in ((listed - loaded, "lacks"), (loaded - listed, "also holds")):
        if lacking:
            names = ", ".join(sorted(lacking)[:_SHOWN])
            raise ModelError(
                f"{file} {what} {names}, against what {uri} says; copy all files of one save"
            )
