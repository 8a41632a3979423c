"""A program as a folder: readable text, weights as safetensors, and the proof beside them.

``program.yaml`` has a line for every layer and every step, the weights' name and their SHA-256.
Reading is strict: whatever does not fit together is one error that names the step.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import safetensors.torch
import torch
import yaml
from pydantic import Field, TypeAdapter, ValidationError

import embertide
from embertide.errors import ManifestError, ModelError
from embertide.models.options.parts import Part
from embertide.models.tables import PROGRAM_NAME
from embertide.models.weights import load_tensors
from embertide.spec.loading import parse_document
from embertide.spec.problems import dotted
from embertide.steps import Program, Step
from embertide.steps.base import KINDS
from embertide.steps.shapes import Shapes

PROOF_NAME = "proof.json"
FORMAT = 1
Library = Literal["dgl", "pyg", "torch"]
_HEAD = """\
# A model as a program: every step makes one tensor with a row for each node.
# docs/export.md of embertide says what this file is; `embertide show` draws it.
"""


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


class _Input(Part):
    type: str = ""
    name: str
    columns: int = Field(ge=1)
    table: str = Field(
        default="",
        pattern=r"^[^/\\]*$",
        description="npy file in the folder with the rows, where the job gives no features",
    )


class _Output(Part):
    type: str = ""
    name: str


class _Weights(Part):
    file: str = Field(pattern=r"^[^/\\]+$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class _Layer(Part):
    name: str
    kind: str
    graph: bool
    out: str


class _Text(Part):
    """The content of ``program.yaml``."""

    format: int = Field(description="of this file; 1")
    module: str
    library: Library
    weights: _Weights
    inputs: list[_Input] = Field(min_length=1, description="the features, of each node type")
    outputs: list[_Output] = Field(min_length=1, description="the embeddings, likewise")
    reference_tolerance: float = Field(default=1e-3, gt=0)
    layers: list[_Layer] = Field(min_length=1)
    steps: list[dict[str, Any]] = Field(min_length=1)


@dataclass(frozen=True)
class FolderFiles:
    """The files' bytes; ``proof`` is empty until there is one.

    Attributes:
        tables: name of a file -> an embedding table [N, D], as npy.
    """

    program: bytes
    weights: bytes
    weights_name: str
    proof: bytes = b""
    tables: Mapping[str, bytes] = field(default_factory=dict)

    def with_proof(self, proof: Mapping[str, Any]) -> FolderFiles:
        """With the proof that holds for this text and these weights."""
        data = {"program_sha256": hashlib.sha256(self.program).hexdigest(), **proof}
        return replace(self, proof=json.dumps(data, indent=2).encode() + b"\n")

    def in_order(self) -> Iterator[tuple[str, bytes]]:
        """Names and bytes, in the order in which they are written: the text last."""
        yield from self.tables.items()
        yield self.weights_name, self.weights
        yield PROOF_NAME, self.proof
        yield PROGRAM_NAME, self.program


# Writing.


def folder_files(
    program: Program,
    layers: tuple[LayerName, ...],
    module: str,
    library: Library,
    tables: Mapping[str, torch.Tensor] | None = None,
) -> FolderFiles:
    """The text, the weights and the embedding tables of a program.

    Parameters are stored in float32 where that loses nothing, else as they are.

    Args:
        tables: node type -> [N, D] the rows that its input has without features of the job's.
    """
    stored = {kind: _npy(table) for kind, table in (tables or {}).items()}
    named = {kind: _table_name(kind, data) for kind, data in stored.items()}
    weights = safetensors.torch.save({n: _narrow(t) for n, t in _read_params(program).items()})
    digest = hashlib.sha256(weights).hexdigest()
    name = f"weights-{digest[:12]}.safetensors"
    head = {
        "format": FORMAT,
        "module": module,
        "library": library,
        "weights": {"file": name, "sha256": digest},
    }
    lines = [_HEAD + _yaml(head, flow=None), "inputs:\n"]
    for kind, tensor in program.inputs.items():
        entry = _typed(kind) | {"name": tensor, "columns": program.widths[tensor]}
        entry |= {"table": named[kind]} if kind in named else {}
        lines.append("- " + _yaml(entry, flow=True))
    lines.append("outputs:\n")
    for kind, tensor in program.results.items():
        lines.append("- " + _yaml(_typed(kind) | {"name": tensor}, flow=True))
    lines.append("layers:\n")
    for layer, out in zip(layers, program.outputs, strict=True):
        entry = {"name": layer.name, "kind": layer.kind, "graph": layer.graph, "out": out}
        lines.append("- " + _yaml(entry, flow=True))
    lines.append("steps:\n")
    lines += ["- " + _yaml(step_entry(step, program), flow=True) for step in program.steps]
    files = {named[kind]: data for kind, data in stored.items()}
    return FolderFiles("".join(lines).encode(), weights, name, tables=files)


def _npy(table: torch.Tensor) -> bytes:
    data = io.BytesIO()
    np.save(data, _narrow(table.detach()).numpy(), allow_pickle=False)
    return data.getvalue()


def _table_name(kind: str, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()[:12]
    return f"table-{kind}-{digest}.npy" if kind else f"table-{digest}.npy"


def _typed(kind: str) -> dict[str, Any]:
    """A node type's name, which a program of one type does not have."""
    return {"type": kind} if kind else {}


def step_entry(step: Step, program: Program) -> dict[str, Any]:
    """A step as plain values; fields with their default value are left out."""
    entry: dict[str, Any] = {
        "out": step.out,
        "columns": program.widths[step.out],
        "layer": step.layer,
        "step": step.kind_name,
    }
    for one in fields(step):
        value = getattr(step, one.name)
        if one.name in ("out", "layer") or (one.default is not MISSING and value == one.default):
            continue
        entry[one.name] = list(value) if isinstance(value, tuple) else value
    return entry


def _read_params(program: Program) -> dict[str, torch.Tensor]:
    names = dict.fromkeys(name for step in program.steps for name in step.param_names())
    return {name: program.params[name] for name in names}


def _narrow(tensor: torch.Tensor) -> torch.Tensor:
    narrow = tensor.float()
    return (narrow if torch.equal(narrow.to(tensor.dtype), tensor) else tensor).contiguous().clone()


def _yaml(value: Any, flow: bool | None) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=flow, sort_keys=False, width=1 << 20)
    return text


# Reading.


def parse_text(text: bytes, source: str) -> _Text:
    """The content of ``program.yaml``, before it is held against the weights.

    Raises:
        ModelError: with every problem, each with path and line.
    """
    try:
        found = parse_document(_Text, text.decode(), source)
    except UnicodeDecodeError as error:
        raise ModelError(f"{source} is not text in UTF-8 (byte {error.start})") from None
    except ManifestError as error:
        raise ModelError(str(error)) from None
    if found.format != FORMAT:
        raise ModelError(
            f"{source} has format {found.format}; this embertide {embertide.__version__} reads"
            f" {FORMAT}: export the model with the release that runs it"
        )
    return found


def parse_folder(text: bytes, weights: bytes, source: str, *, exact: bool = False) -> Exported:
    """The program of a folder's two files.

    Args:
        exact: keep parameters as they are stored; workers have them in float32.

    Raises:
        ModelError: the files do not belong together, or a step does not fit; names it.
    """
    found = parse_text(text, source)
    if hashlib.sha256(weights).hexdigest() != found.weights.sha256:
        raise ModelError(
            f"{found.weights.file} is not the file that {source} was written with (its SHA-256"
            " differs); export the model again"
        )
    params = _params(load_tensors(weights, found.weights.file), found.weights.file, exact)
    steps, widths = _steps(found, params, source)
    known = set(widths)
    wanted = [("outputs", one.name) for one in found.outputs]
    for what, name in [*wanted, *(("layers", one.out) for one in found.layers)]:
        if name not in known:
            raise ModelError(f"{source}: {what} names tensor {name!r}, which no step makes")
    digest = hashlib.sha256(text).hexdigest()
    program = Program(
        steps=steps,
        params=params,
        widths=widths,
        layers=max(1, sum(layer.graph for layer in found.layers)),
        inputs={one.type: one.name for one in found.inputs},
        results={one.type: one.name for one in found.outputs},
        digest=digest,
        outputs=tuple(layer.out for layer in found.layers),
    )
    _check_types(program, source)
    layers = tuple(LayerName(one.name, one.kind, one.graph) for one in found.layers)
    return Exported(program, layers, found.module, found.library, digest, found.reference_tolerance)


def _check_types(program: Program, source: str) -> None:
    """Every step stays within a node type, or crosses by a relation that there is."""
    try:
        types = program.types
    except (ModelError, KeyError) as error:
        raise ModelError(f"{source}: {error}") from None
    for kind, name in program.results.items():
        if types[name] != kind:
            raise ModelError(
                f"{source}: outputs has {name!r} as embeddings of {kind!r}, but it is of"
                f" {types[name]!r}"
            )


def _params(tensors: dict[str, torch.Tensor], file: str, exact: bool) -> dict[str, torch.Tensor]:
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            what = "NaN or Inf" if tensor.is_floating_point() else str(tensor.dtype)
            raise ModelError(f"{file}: {name} holds {what}; parameters are finite numbers")
    return tensors if exact else {name: t.float().contiguous() for name, t in tensors.items()}


def _steps(
    text: _Text, params: dict[str, torch.Tensor], source: str
) -> tuple[tuple[Step, ...], dict[str, int]]:
    """All steps, and the columns of every tensor."""
    widths = {one.name: one.columns for one in text.inputs}
    graphs = max(1, sum(layer.graph for layer in text.layers))
    steps: list[Step] = []
    for number, entry in enumerate(text.steps):
        where = f"{source}: steps[{number}] ({entry.get('out')})"
        data = dict(entry)
        columns = data.pop("columns", None)
        step = _step(data, where)
        if step.out in widths:
            raise ModelError(f"{where}: an earlier step makes a tensor of this name")
        if not 0 <= step.layer < graphs:
            raise ModelError(f"{where}: layer is {step.layer}; layers read {graphs} graphs")
        try:
            width = step.width(Shapes(widths, params))
        except ModelError as error:
            raise ModelError(f"{where}: {error}") from None
        if width != columns:
            raise ModelError(f"{where}: columns is {columns}, but the step gives {width}")
        widths[step.out] = width
        steps.append(step)
    return tuple(steps), widths


def _step(data: dict[str, Any], where: str) -> Step:
    kind = KINDS.get(str(data.pop("step", None)))
    if kind is None:
        raise ModelError(
            f"{where}: there is no such step; this embertide {embertide.__version__} has"
            f" {', '.join(sorted(KINDS))}"
        )
    unknown = set(data) - {one.name for one in fields(kind)}
    if unknown:
        raise ModelError(f"{where}: {kind.kind_name} has no {', '.join(sorted(unknown))}")
    try:
        return TypeAdapter(kind).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        problems = [f"{dotted(one['loc'])}: {one['msg']}" for one in error.errors()]
        raise ModelError(f"{where}: {kind.kind_name} {'; '.join(problems)}") from None
