"""A model as workers have it: ``program.yaml`` and its weights, whatever described the model.

One process compiles the model's files; workers parse what it made, and know nothing of
``model.yaml`` or of libraries' weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from embertide.models.folder import LayerName, Library
from embertide.models.folder_reading import parse_folder
from embertide.models.folder_writing import folder_files
from embertide.models.read import Model
from embertide.models.tables import PROGRAM_NAME
from embertide.program.steps import Program

_WEIGHTS, _FACTS = "weights", "model.json"


@dataclass(frozen=True, kw_only=True)
class CompiledModel:
    """A model that was compiled; see `embertide.models.read.Model`.

    Attributes:
        digest: of the files that it was compiled from.
    """

    compiled: Program
    layers: tuple[LayerName, ...]
    library: Library
    digest: str
    reference_tolerance: float

    @property
    def layer_names(self) -> tuple[str, ...]:
        """What each layer is."""
        return tuple(layer.label for layer in self.layers)

    def program(self) -> Program:
        """Its steps."""
        return self.compiled


def compile_model(model: Model) -> dict[str, bytes]:
    """The files, name -> content, that `read_compiled` reads.

    Raises:
        ModelError: the description and the weights of the model do not fit together.
    """
    files = folder_files(model.program(), model.layers, "", model.library)
    facts = {"digest": model.digest, "reference_tolerance": model.reference_tolerance}
    return {
        PROGRAM_NAME: files.program,
        _WEIGHTS: files.weights,
        _FACTS: json.dumps(facts).encode(),
    }


def read_compiled(files: Mapping[str, bytes]) -> CompiledModel:
    """A compiled model, its parameters in float32."""
    folder = parse_folder(files[PROGRAM_NAME], files[_WEIGHTS], PROGRAM_NAME)
    facts = json.loads(files[_FACTS])
    return CompiledModel(
        compiled=replace(folder.program, digest=facts["digest"]),
        layers=folder.layers,
        library=folder.library,
        digest=facts["digest"],
        reference_tolerance=facts["reference_tolerance"],
    )
