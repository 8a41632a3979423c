"""Read a model: a folder that was exported, or ``model.yaml`` and the weights beside it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch

from embertide.errors import ObjectMissing
from embertide.models.assemble import assemble
from embertide.models.description import Description, parse_description
from embertide.models.files import find_text, find_weights, is_program
from embertide.models.folder import PROOF_NAME, UNTRAINED, Exported, LayerName, Library
from embertide.models.folder_reading import parse_folder, parse_text
from embertide.models.weight_files import read_weights
from embertide.models.weights import Weights
from embertide.program.steps import Program

if TYPE_CHECKING:
    from embertide.io.storage.protocol import Storage


class Model(Protocol):
    """A model that was read, whatever described it."""

    @property
    def digest(self) -> str:
        """SHA-256 over the bytes of its files."""

    @property
    def library(self) -> Library:
        """Whose modules it is made of: dgl, pyg, or torch alone."""

    @property
    def layers(self) -> tuple[LayerName, ...]:
        """Its layers, in order."""

    @property
    def layer_names(self) -> tuple[str, ...]:
        """What each layer is, in order; the program's ``outputs`` are their results."""

    @property
    def reference_tolerance(self) -> float:
        """How far embeddings may be from those of a reference, as a share of its largest value."""

    def program(self) -> Program:
        """Its steps.

        Raises:
            ModelError: the weights do not fit them.
        """


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """What the files of a described model hold, before the two are compared.

    Attributes:
        source: the URI of the weights.
        digest: SHA-256 over the bytes of both files.
    """

    description: Description
    tensors: dict[str, torch.Tensor]
    source: str
    digest: str

    @property
    def library(self) -> Library:
        """Whose modules saved the weights."""
        return self.description.library

    @property
    def layers(self) -> tuple[LayerName, ...]:
        """Each layer's convolution."""
        return tuple(
            LayerName("", layer.conv, layer.reads_edges) for layer in self.description.layers
        )

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Each layer's convolution."""
        return tuple(layer.label for layer in self.layers)

    @property
    def reference_tolerance(self) -> float:
        """What the description says of it."""
        return self.description.reference_tolerance

    def program(self, description: Description | None = None) -> Program:
        """The program of the description, or of another one for the same weights.

        Raises:
            ModelError: with every parameter in which the description and the weights differ.
        """
        # A copy, since parameters that `ignore` names are dropped from it.
        weights = Weights(dict(self.tensors), self.source)
        return assemble(description or self.description, weights, self.digest)


@dataclass(frozen=True)
class ExportedModel:
    """A folder that ``embertide export`` wrote."""

    exported: Exported

    @property
    def library(self) -> Library:
        """Whose modules were traced."""
        return self.exported.library

    @property
    def digest(self) -> str:
        """The digest of the text, which has the weights' own."""
        return self.exported.digest

    @property
    def layers(self) -> tuple[LayerName, ...]:
        """Each layer's class and name."""
        return self.exported.layers

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Each layer's class and name."""
        return tuple(layer.label for layer in self.layers)

    @property
    def reference_tolerance(self) -> float:
        """What the text says of it."""
        return self.exported.reference_tolerance

    def program(self) -> Program:
        """Its steps."""
        return self.exported.program


def read_model(storage: Storage, uri: str) -> Program:
    """The program of the model at ``uri``: a folder, or the file in it that says the model.

    Reads the text and the weights whole.

    Raises:
        ObjectMissing: there is neither ``program.yaml`` nor ``model.yaml``, or no file that it
            names.
        ModelError: with every problem of the text, or every parameter in which it and the
            weights differ.
    """
    return read_files(storage, uri).program()


def read_files(storage: Storage, uri: str) -> Model:
    """Read the model at ``uri``, as :func:`read_model` does.

    Raises:
        ObjectMissing: there is neither ``program.yaml`` nor ``model.yaml``, or no file that it
            names.
        ModelError: with every problem of the text, or where the weights cannot be read.
    """
    file = find_text(storage.stat, uri)
    if is_program(file):
        return _read_exported(storage, file)
    return _read_described(storage, file)


def read_untrained_norms(storage: Storage, uri: str) -> list[str]:
    """Norms of an exported model whose statistics were never loaded or trained, by its proof."""
    folder = find_text(storage.stat, uri).rpartition("/")[0]
    try:
        proof = json.loads(storage.read(f"{folder}/{PROOF_NAME}"))
    except (ObjectMissing, ValueError):
        return []
    return [str(name) for name in proof.get(UNTRAINED, [])]


def _read_exported(storage: Storage, file: str) -> ExportedModel:
    text = storage.read(file)
    name = parse_text(text, file).weights.file
    weights = storage.read(f"{file.rsplit('/', 1)[0]}/{name}")
    exported = parse_folder(text, weights, file)
    program = exported.program
    # Folders of earlier releases do not say it: there, nothing shows that edges must have weights.
    of = {name: program.weights.get(name, "optional") for name in program.weighted_relations}
    return ExportedModel(replace(exported, program=replace(program, weights=of)))


def _read_described(storage: Storage, file: str) -> ModelFiles:
    text = storage.read(file)
    description = parse_description(text, file)
    weights_uri = find_weights(storage.stat, file.rsplit("/", 1)[0], description.weights)
    weights = read_weights(storage, weights_uri, description.key)
    return ModelFiles(
        description=description,
        tensors=weights.tensors,
        source=weights_uri,
        digest=_digest(text, *weights.files),
    )


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        # The length keeps bytes from moving between the two parts unnoticed.
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()
