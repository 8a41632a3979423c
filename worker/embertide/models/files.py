"""Which files a model is read from: its text, its weights, and the files that an index lists.

Planning lists them as inputs and the reader reads them, both by what is here, so that no file is
read that is not listed. Torch is not loaded for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import yaml

from embertide.errors import ModelError, ObjectMissing
from embertide.io.readers.objects import listed_folder
from embertide.io.readers.splits import map_objects
from embertide.models.tables import PROGRAM_NAME, UNREADABLE, ProgramText

if TYPE_CHECKING:
    from embertide.io.storage.protocol import ObjectInfo, Storage

    Stat = Callable[[str], ObjectInfo | None]

WEIGHT_NAMES = (
    "weights.safetensors",
    "model.safetensors",
    "model.safetensors.index.json",
    "weights.pt",
    "model.pt",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
INDEX = ".index.json"
_DESCRIPTION_NAME = "model.yaml"


def model_objects(storage: Storage, uri: str, text: ProgramText) -> list[ObjectInfo]:
    """The objects of a model, by URI: all in its folder, and those elsewhere that it names.

    What is missing or damaged is left out: the reader, which reads it, refuses it.

    Args:
        text: of the model, as far as it is a program.
    """
    try:
        listed = storage.scan(uri).objects
    except ObjectMissing:
        return []
    folder, found = f"{listed_folder(uri)}/", {info.uri: info for info in listed}

    def stat(file: str) -> ObjectInfo | None:
        """From the listing, as far as that goes: the names that it leaves out are asked for."""
        names = file.removeprefix(folder).split("/")
        visible = file.startswith(folder) and all(name and name[0] not in "._" for name in names)
        return found[file] if file in found else None if visible else storage.stat(file)

    with suppress(ModelError, ObjectMissing):
        for file in _named(storage, stat, uri, text):
            if (info := stat(file)) is not None:
                found[info.uri] = info
    return [found[file] for file in sorted(found)]


def _named(storage: Storage, stat: Stat, uri: str, text: ProgramText) -> Iterator[str]:
    """The files that the reader reads, but for tables, which are features."""
    file = find_text(stat, uri)
    yield file
    folder = file.rpartition("/")[0]
    if is_program(file):
        if text.weights:
            yield f"{folder}/{text.weights}"
        return
    try:
        content = yaml.safe_load(storage.read(file))
        weights = find_weights(stat, folder, content.get("weights"))
    except UNREADABLE:
        return
    yield weights
    if weights.endswith(INDEX):
        names = parse_index(storage.read(weights), weights).values()
        yield from (f"{weights.rpartition('/')[0]}/{name}" for name in sorted(set(names)))


def is_program(file: str) -> bool:
    """Whether the file that says a model is an exported one's."""
    return file.rpartition("/")[2] == PROGRAM_NAME


def find_text(stat: Stat, uri: str) -> str:
    """The file that says the model at ``uri``.

    Raises:
        ModelError: there are two.
    """
    if uri.endswith((".yaml", ".yml")):
        return uri
    both = [f"{uri.rstrip('/')}/{name}" for name in (_DESCRIPTION_NAME, PROGRAM_NAME)]
    found = _existing(stat, both)
    if len(found) > 1:
        raise ModelError(
            f"{uri} holds both {_DESCRIPTION_NAME} and {PROGRAM_NAME}, which are two models; name"
            " the file itself, or keep one"
        )
    return found[0] if found else both[0]


def find_weights(stat: Stat, folder: str, name: str | None) -> str:
    """The URI of the weights of a described model.

    Args:
        name: what its text says of them: a name, a URI, or nothing.

    Raises:
        ModelError: it says nothing, and there are none or several in the folder.
    """
    if name is not None:
        return name if "://" in name else f"{folder}/{name}"
    here = _existing(stat, [f"{folder}/{name}" for name in WEIGHT_NAMES])
    if len(here) != 1:
        names = (uri.rsplit("/", 1)[1] for uri in here)
        found = f"both {' and '.join(names)}" if here else "none"
        raise ModelError(
            f"{folder} must hold one of {', '.join(WEIGHT_NAMES)}, but holds {found};"
            " say which in model.yaml (weights: name)"
        )
    return here[0]


def parse_index(data: bytes, uri: str) -> dict[str, str]:
    """The file of each parameter, beside an index of weights.

    Raises:
        ModelError: it is no such index.
    """
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


def _existing(stat: Stat, uris: Sequence[str]) -> list[str]:
    """Those of some objects that exist; asked for at once, since each answer is waited for."""
    return [
        uri for uri, info in zip(uris, map_objects(uris, stat), strict=True) if info is not None
    ]
