"""Read a model: ``model.yaml`` and the weights beside it become a program."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from embertide.errors import ModelError
from embertide.models.assemble import assemble
from embertide.models.description import Description, parse_description
from embertide.models.program import Program
from embertide.models.weights import Weights, load_tensors

if TYPE_CHECKING:
    from embertide.storage.protocol import Storage

WEIGHT_NAMES = ("weights.safetensors", "model.safetensors", "weights.pt", "model.pt")


def read_model(storage: Storage, uri: str) -> Program:
    """The program of the model at ``uri``: a folder with ``model.yaml``, or that file itself.

    Reads the description and the weights whole. The digest is the SHA-256 over the bytes of
    both.

    Raises:
        ObjectMissing: there is no ``model.yaml``, or no file that it names.
        ModelError: with every problem of the description, or every parameter in which it and
            the weights differ.
    """
    file = uri if uri.endswith((".yaml", ".yml")) else uri.rstrip("/") + "/model.yaml"
    text = storage.read(file)
    description = parse_description(text, file)
    weights_uri = _find_weights(storage, file.rsplit("/", 1)[0], description)
    data = storage.read(weights_uri)
    tensors = load_tensors(data, weights_uri)
    return assemble(description, Weights(tensors, weights_uri), _digest(text, data))


def _find_weights(storage: Storage, folder: str, description: Description) -> str:
    if description.weights is not None:
        name = description.weights
        return name if "://" in name else f"{folder}/{name}"
    here = [n for n in WEIGHT_NAMES if storage.stat(f"{folder}/{n}") is not None]
    if len(here) != 1:
        found = f"both {' and '.join(here)}" if here else "none"
        raise ModelError(
            f"{folder} must hold one of {', '.join(WEIGHT_NAMES)}, but holds {found};"
            " say which in model.yaml (weights: name)"
        )
    return f"{folder}/{here[0]}"


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        # The length keeps bytes from moving between the two parts unnoticed.
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()
