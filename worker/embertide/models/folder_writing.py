"""Write a program as the files of a folder, see :mod:`embertide.models.folder`."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
import yaml

from embertide.models.folder import FORMAT, FolderFiles, LayerName, Library
from embertide.program.steps import Program, Step
from embertide.program.steps.decoder import Decoder
from embertide.spec.result_names import name_of, node_type_of

_HEAD = """\
# A model as a program: every step makes one tensor with a row for each node.
# docs/export.md of embertide says what this file is; `embertide show` draws it.
"""


@dataclass(frozen=True)
class StoredTable:
    """An embedding table of a node type.

    Attributes:
        rows: [N, D].
        ids: [N] the id that each row is of, int64 or texts; None where it is the row's number.
    """

    rows: torch.Tensor
    ids: npt.NDArray[Any] | None = None


def folder_files(
    program: Program,
    layers: tuple[LayerName, ...],
    module: str,
    library: Library,
    tables: Mapping[str, Sequence[StoredTable]] | None = None,
    categories: Mapping[str, Mapping[int, int]] | None = None,
    edge_categories: Mapping[str, Mapping[int, int]] | None = None,
) -> FolderFiles:
    """The text, the weights and the embedding tables of a program.

    Parameters are stored in float32 where that loses nothing, else as they are.

    Args:
        tables: node type -> the tables whose columns its input has, after those of features.
        categories: node type -> column of its features -> how many categories it has.
        edge_categories: relation -> the same of its edges' features.
    """
    files: dict[str, bytes] = {}
    stored = {
        kind: [_table_entry(kind, table, files) for table in of_type]
        for kind, of_type in (tables or {}).items()
    }
    params = _read_params(program) | _decoder_params(program.decoder)
    weights = safetensors.torch.save({name: _narrow(tensor) for name, tensor in params.items()})
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
        entry |= {"tables": stored[kind]} if kind in stored else {}
        of_columns = _categories((categories or {}).get(kind, {}))
        entry |= {"categories": of_columns} if of_columns else {}
        lines.append("- " + _yaml(entry, flow=True))
    lines += ["edges:\n"] if program.weights or edge_categories else []
    for relation in dict.fromkeys([*program.weights, *(edge_categories or {})]):
        entry = {"relation": relation} if relation else {}
        entry |= {"weights": program.weights[relation]} if relation in program.weights else {}
        of_columns = _categories((edge_categories or {}).get(relation, {}))
        entry |= {"categories": of_columns} if of_columns else {}
        lines.append("- " + _yaml(entry, flow=True))
    lines.append("outputs:\n")
    for key, tensor in program.results.items():
        named = {"result": name_of(key)} if name_of(key) else {}
        entry = _typed(node_type_of(key)) | named | {"name": tensor}
        lines.append("- " + _yaml(entry, flow=True))
    lines.append("layers:\n")
    for layer, out in zip(layers, program.outputs, strict=True):
        entry = {"name": layer.name, "kind": layer.kind, "graph": layer.graph, "out": out}
        lines.append("- " + _yaml(entry, flow=True))
    lines.append("steps:\n")
    lines += ["- " + _yaml(step_entry(step, program), flow=True) for step in program.steps]
    if program.decoder is not None:
        lines += ["decoder:\n", _decoder_text(program.decoder)]
    return FolderFiles("".join(lines).encode(), weights, name, tables=files)


def _decoder_params(decoder: Decoder | None) -> dict[str, torch.Tensor]:
    """The decoder's parameters, by their names among the weights."""
    return {} if decoder is None else {f"decoder.{n}": t for n, t in decoder.params.items()}


def _decoder_text(decoder: Decoder) -> str:
    entry = {
        "source": decoder.source,
        "destination": decoder.destination,
        "params": [*_decoder_params(decoder)],
        "lines": [*decoder.lines],
    }
    return "".join(f"  {line}\n" for line in _yaml(entry, flow=None).splitlines())


def _categories(columns: Mapping[int, int]) -> list[dict[str, int]]:
    """Columns that hold categories, and how many each has."""
    return [{"column": column, "count": count} for column, count in columns.items()]


def _table_entry(kind: str, table: StoredTable, files: dict[str, bytes]) -> dict[str, Any]:
    """What ``program.yaml`` has of a table; its files are added to ``files``."""
    rows = _npy(_narrow(table.rows.detach()).numpy())
    name = _named("table", kind, rows)
    files[name] = rows
    entry: dict[str, Any] = {"file": name, "columns": table.rows.shape[1]}
    if table.ids is not None:
        ids = _npy(table.ids)
        entry["ids"] = _named("ids", kind, ids)
        files[entry["ids"]] = ids
    return entry


def _npy(array: npt.NDArray[Any]) -> bytes:
    data = io.BytesIO()
    np.save(data, array, allow_pickle=False)
    return data.getvalue()


def _named(what: str, kind: str, data: bytes) -> str:
    """The name of a file by its node type and its content."""
    return "-".join(filter(None, (what, kind, hashlib.sha256(data).hexdigest()[:12]))) + ".npy"


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
