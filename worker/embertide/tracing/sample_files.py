"""Samples in files: tensors that ``forward`` is called with, or the job that will run the model."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn

from embertide.errors import ModelError
from embertide.io.storage.protocol import Storage
from embertide.models.checkpoints import load_values
from embertide.tracing.graph_types import named_types
from embertide.tracing.record.arguments import is_by_type
from embertide.tracing.record.graphs import GraphTypes
from embertide.tracing.sample import Sample, read_sample

JOBS = (".yaml", ".yml")
_TORCH = (".pt", ".pth")
_OF_TYPE = "/"
"""What separates an argument's name from the node type or relation of a tensor of it."""
_HOW = (
    "a sample is a file of torch.save (.pt, .pth) with the arguments of forward as a tuple or a"
    " dict, .safetensors or .npz with a tensor for each argument, by its name, or a job's .yaml"
)


def read_sample_file(
    module: nn.Module,
    uri: str,
    storage: Storage,
    inputs: Mapping[str, str],
    *,
    tables: bool = False,
) -> Sample:
    """Read columns, categories and types from a file; of a job the columns and types.

    Args:
        uri: the file, by whose ending its kind is known; a job is a path of this machine.
        inputs, tables: as for :func:`embertide.tracing.sample.read_sample`.

    Raises:
        ModelError: the file is of no such kind, damaged, holds objects that only code could read,
            or does not fit ``forward``.
        ObjectMissing: there is no such file.
        ManifestError, InputError: of the job, or of its features.
    """
    if uri.endswith(JOBS):
        types = named_types(Path(uri.removeprefix("file://")), storage)
        return Sample(graph=types) if is_by_type(module) else _of_types(types)
    if not uri.endswith((*_TORCH, ".safetensors", ".npz")):
        raise ModelError(f"the sample {uri} is of no known kind; {_HOW}")
    data = storage.read(uri)
    if uri.endswith(_TORCH):
        sample = load_values(data, uri)
    else:
        named = _safetensors(data, uri) if uri.endswith(".safetensors") else _npz(data, uri)
        sample = _by_argument(named)
    if not isinstance(sample, Tensor | tuple | list | Mapping):
        raise ModelError(f"the sample {uri} holds a {type(sample).__name__}; {_HOW}")
    return read_sample(module, sample, inputs, tables=tables)


def _of_types(types: GraphTypes) -> Sample:
    """Columns and types; of one node type and one relation the columns alone.

    Which columns are categories, and how many, no job states.
    """
    if len(types.nodes) > 1 or len(types.relations) > 1:
        return Sample(graph=types)
    (columns,), of_edges = types.nodes.values(), max(types.edge_features.values(), default=0)
    return Sample(
        width=columns or None, edge_features=of_edges or None, weighted=bool(types.weighted)
    )


def _safetensors(data: bytes, uri: str) -> dict[str, Tensor]:
    try:
        return load_safetensors(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ModelError(f"the sample {uri} is no safetensors file: {error}") from None


def _npz(data: bytes, uri: str) -> dict[str, Tensor]:
    """Arrays, of which none is read by running code from the file."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise ModelError(
            f"the sample {uri} is no npz file of arrays of numbers: {error}; write it with"
            " numpy.savez"
        ) from None


def _by_argument(named: Mapping[str, Tensor]) -> dict[str, Any]:
    """Tensors by argument; ``x_dict/user`` is that of user in the dict ``x_dict``."""
    arguments: dict[str, Any] = {}
    for name, tensor in named.items():
        argument, _, of_type = name.partition(_OF_TYPE)
        if not of_type:
            arguments[argument] = tensor
            continue
        of_types = arguments.setdefault(argument, {})
        if not isinstance(of_types, dict):
            raise ModelError(
                f"the sample has {argument} as one tensor and {name}; give it as one, or by type"
            )
        of_types[of_type] = tensor
    return arguments
