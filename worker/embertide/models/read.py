"""Read a model: ``model.yaml`` and the weights beside it become a program."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from embertide.errors import ModelError
from embertide.models.assemble import assemble
from embertide.models.description import Description, parse_description
from embertide.models.weights import Weights, load_tensors
from embertide.steps import Program

if TYPE_CHECKING:
    from embertide.storage.protocol import Storage

WEIGHT_NAMES = ("weights.safetensors", "model.safetensors", "weights.pt", "model.pt")


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """What a model's files hold, before the two are held against each other.

    Attributes:
        source: the URI of the weights.
        digest: SHA-256 over the bytes of both files.
    """

    description: Description
    tensors: dict[str, torch.Tensor]
    source: str
    digest: str

    def program(self, description: Description | None = None) -> Program:
        """The program of the description, or of another one for the same weights.

        Raises:
            ModelError: with every parameter in which the description and the weights differ.
        """
        # A copy, since parameters that `ignore` names are dropped from it.
        weights = Weights(dict(self.tensors), self.source)
        return assemble(description or self.description, weights, self.digest)


def read_model(storage: Storage, uri: str) -> Program:
    """The program of the model at ``uri``: a folder with ``model.yaml``, or that file itself.

    Reads the description and the weights whole.

    Raises:
        ObjectMissing: there is no ``model.yaml``, or no file that it names.
        ModelError: with every problem of the description, or every parameter in which it and
            the weights differ.
    """
    return read_files(storage, uri).program()


def read_files(storage: Storage, uri: str) -> ModelFiles:
    """Read ``model.yaml`` and the weights at ``uri``, as :func:`read_model` does.

    Raises:
        ObjectMissing: there is no ``model.yaml``, or no file that it names.
        ModelError: with every problem of the description, or where the weights cannot be read.
    """
    file = uri if uri.endswith((".yaml", ".yml")) else uri.rstrip("/") + "/model.yaml"
    text = storage.read(file)
    description = parse_description(text, file)
    weights_uri = _find_weights(storage, file.rsplit("/", 1)[0], description)
    data = storage.read(weights_uri)
    return ModelFiles(
        description=description,
        tensors=load_tensors(data, weights_uri),
        source=weights_uri,
        digest=_digest(text, data),
    )


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
