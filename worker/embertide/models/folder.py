"""A program as a folder: readable text, weights as safetensors, and the proof beside them.

``program.yaml`` has a line for every layer and every step, the weights' name and their SHA-256.
:mod:`embertide.models.folder_writing` writes it, :mod:`embertide.models.folder_reading` reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import Field

from embertide.facts.telemetry.strict_json import json_text
from embertide.models.parts import Part
from embertide.models.tables import PROGRAM_NAME
from embertide.program.steps import Program, WeightsOf
from embertide.spec.result_names import RESULT_PATTERN, result_key

PROOF_NAME = "proof.json"
UNTRAINED = "untrained_norms"
"""Field of the proof: norms whose running statistics are those that they began with."""
FORMAT = 1
Library = Literal["dgl", "pyg", "torch"]


def untrained_norms(names: Sequence[str]) -> str:
    """What is wrong with such norms, as a part of a sentence."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (
        f"{', '.join(names[:_SHOWN])}{more} {'has' if len(names) == 1 else 'have'} statistics that"
        " were never loaded or trained (mean 0, variance 1, no batches)"
    )


_SHOWN = 3


@dataclass(frozen=True)
class LayerName:
    """A layer as the module has it.

    Attributes:
        name: of the submodule, such as ``convs.0``; "" for what stands in ``forward`` itself.
        kind: its class.
        graph: whether it reads edges, and so has a layer graph.
    """

    name: str
    kind: str
    graph: bool

    @property
    def label(self) -> str:
        """The class and the name, as people see them."""
        return f"{self.kind} {self.name}".strip()


@dataclass(frozen=True)
class Exported:
    """A folder that was read.

    Attributes:
        module: class of the module it was exported from.
        library: whose convolutions it has.
        digest: SHA-256 of the text, which has that of the weights.
    """

    program: Program
    layers: tuple[LayerName, ...]
    module: str
    library: Library
    digest: str
    reference_tolerance: float


class _Table(Part):
    file: str = Field(
        pattern=r"^[^/\\]+$", description="npy file in the folder, a row of each node"
    )
    columns: int = Field(ge=1)
    ids: str = Field(
        default="",
        pattern=r"^[^/\\]*$",
        description="npy file in the folder with the id that each row is of; else the row's number",
    )


class _Categories(Part):
    column: int = Field(ge=0)
    count: int = Field(ge=1)


class _Input(Part):
    type: str = ""
    name: str
    columns: int = Field(ge=1)
    tables: list[_Table] = Field(
        default_factory=list,
        description="whose columns come after those of the job's features, or take their place",
    )
    categories: list[_Categories] = Field(
        default_factory=list,
        description="columns of the job's features that hold whole numbers from 0 to count - 1",
    )


class _Edges(Part):
    relation: str = ""
    weights: WeightsOf | None = Field(
        default=None, description="whether edges must have weights, where steps read them"
    )
    categories: list[_Categories] = Field(
        default_factory=list,
        description="features of the edges that hold whole numbers from 0 to count - 1",
    )


class _Output(Part):
    type: str = Field(default="", pattern=r"^[^/]*$")
    result: str = Field(
        default="", pattern=f"^$|{RESULT_PATTERN}", description="its name, of several results"
    )
    name: str

    @property
    def key(self) -> str:
        """The key of the result."""
        return result_key(self.type, self.result)


class _Weights(Part):
    file: str = Field(pattern=r"^[^/\\]+$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class _Layer(Part):
    name: str
    kind: str
    graph: bool
    out: str


class _Decoder(Part):
    source: int = Field(ge=1, description="columns of the first node's row, s")
    destination: int = Field(ge=1, description="columns of the second node's row, t")
    params: list[str] = Field(default_factory=list, description="of the weights: p0, p1, ...")
    lines: list[str] = Field(min_length=1, description="what makes out of s, t and the parameters")


class FolderText(Part):
    """The content of ``program.yaml``."""

    format: int = Field(description="of this file; 1")
    module: str
    library: Library
    weights: _Weights
    inputs: list[_Input] = Field(min_length=1, description="the features, of each node type")
    edges: list[_Edges] = Field(
        default_factory=list,
        description="relations whose edges have weights, or categories as features",
    )
    outputs: list[_Output] = Field(min_length=1, description="the results, likewise")
    reference_tolerance: float = Field(default=1e-3, gt=0)
    layers: list[_Layer] = Field(min_length=1)
    steps: list[dict[str, Any]] = Field(min_length=1)
    decoder: _Decoder | None = Field(default=None, description="what gives pairs of nodes scores")


@dataclass(frozen=True)
class FolderFiles:
    """The files' bytes; ``proof`` is empty until there is one.

    Attributes:
        tables: name of a file -> an embedding table [N, D] or the ids of its rows, as npy.
    """

    program: bytes = field(repr=False)
    weights: bytes = field(repr=False)
    weights_name: str
    proof: bytes = field(default=b"", repr=False)
    tables: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def with_proof(self, proof: Mapping[str, Any]) -> FolderFiles:
        """With the proof that holds for this text and these weights."""
        data = {"program_sha256": hashlib.sha256(self.program).hexdigest(), **proof}
        return replace(self, proof=json_text(data, indent=2).encode() + b"\n")

    def in_order(self) -> Iterator[tuple[str, bytes]]:
        """Names and bytes, in the order in which they are written: the text last."""
        yield from self.tables.items()
        yield self.weights_name, self.weights
        yield PROOF_NAME, self.proof
        yield PROGRAM_NAME, self.program
