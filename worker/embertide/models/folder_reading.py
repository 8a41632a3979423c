"""Read a program from the files of a folder, see :mod:`embertide.models.folder`.

Reading is strict: whatever does not fit together is one error that names the step.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from embertide._version import __version__
from embertide.errors import ManifestError, ModelError
from embertide.models.checkpoints import flaw_of
from embertide.models.folder import FORMAT, Exported, FolderText, LayerName
from embertide.models.weights import load_tensors
from embertide.program.steps import Program, Step
from embertide.program.steps.base import KINDS
from embertide.program.steps.decoder import Decoder
from embertide.program.steps.shapes import Shapes
from embertide.spec.loading import parse_document
from embertide.spec.problems import dotted
from embertide.spec.result_names import name_of, node_type_of


def parse_text(text: bytes, source: str) -> FolderText:
    """The content of ``program.yaml``, before it is compared with the weights.

    Raises:
        ModelError: with every problem, each with path and line.
    """
    try:
        found = parse_document(FolderText, text.decode(), source)
    except UnicodeDecodeError as error:
        raise ModelError(f"{source} is not text in UTF-8 (byte {error.start})") from None
    except ManifestError as error:
        raise ModelError(str(error)) from None
    if found.format != FORMAT:
        raise ModelError(
            f"{source} has format {found.format}; this embertide {__version__} reads"
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
        weights={one.relation: one.weights for one in found.edges if one.weights},
        inputs={one.type: one.name for one in found.inputs},
        results=_results(found, source),
        digest=digest,
        outputs=tuple(layer.out for layer in found.layers),
        decoder=_decoder(found, params, source),
    )
    _check_types(program, source)
    layers = tuple(LayerName(one.name, one.kind, one.graph) for one in found.layers)
    return Exported(program, layers, found.module, found.library, digest, found.reference_tolerance)


def _decoder(text: FolderText, params: dict[str, torch.Tensor], source: str) -> Decoder | None:
    """What gives pairs of nodes scores, if the model has that."""
    given = text.decoder
    if given is None:
        return None
    unknown = [name for name in given.params if name not in params]
    if unknown:
        raise ModelError(f"{source}: decoder reads {unknown[0]}, which the weights do not have")
    named = {f"p{at}": params[name] for at, name in enumerate(given.params)}
    decoder = Decoder(tuple(given.lines), given.source, given.destination, named)
    try:
        assert decoder.width
    except ModelError as error:
        raise ModelError(f"{source}: decoder: {error}") from None
    return decoder


def _results(text: FolderText, source: str) -> dict[str, str]:
    """Key -> tensor of each result."""
    keys = [output.key for output in text.outputs]
    named = {node_type_of(key): bool(name_of(key)) for key in reversed(keys)}
    for key in keys:
        if keys.count(key) > 1 or bool(name_of(key)) != named[node_type_of(key)]:
            raise ModelError(
                f"{source}: outputs has several results{_of(node_type_of(key))}; each must have a"
                " name of its own (result)"
            )
    return {output.key: output.name for output in text.outputs}


def _of(node_type: str) -> str:
    return f" of node type {node_type!r}" if node_type else ""


def _check_types(program: Program, source: str) -> None:
    """Every step stays within a node type, or crosses by a relation that there is."""
    try:
        types = program.types
    except (ModelError, KeyError) as error:
        raise ModelError(f"{source}: {error}") from None
    for key, name in program.results.items():
        if types[name] != node_type_of(key):
            raise ModelError(
                f"{source}: outputs has {name!r} as embeddings of {node_type_of(key)!r}, but it is"
                f" of {types[name]!r}"
            )


def _params(tensors: dict[str, torch.Tensor], file: str, exact: bool) -> dict[str, torch.Tensor]:
    for name, tensor in tensors.items():
        flaw = flaw_of(tensor)
        if flaw or not bool(torch.isfinite(tensor).all()):
            raise ModelError(
                f"{file}: {name} holds {flaw or 'NaN or Inf'}; parameters are finite numbers"
            )
    return tensors if exact else {name: t.float().contiguous() for name, t in tensors.items()}


def _steps(
    text: FolderText, params: dict[str, torch.Tensor], source: str
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
            f"{where}: there is no such step; this embertide {__version__} has"
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
