"""Standardised features: the mean and scale that training used, applied while rows are read.

They are read and checked once, while a run is planned, and travel with its inputs: every rank
applies the same numbers, and the version's manifest tells which.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from embertide.errors import InputError, ManifestError, ObjectMissing
from embertide.io.readers.columns import Float32s
from embertide.io.readers.npy import HEADERS
from embertide.io.storage.protocol import ObjectInfo, Storage
from embertide.spec.manifest import FeatureScaling

_MOST_BYTES = 16 << 20
_HOW = "write json, or numpy.savez with arrays mean and scale"

Vectors = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Scaling:
    """Each value x of column d becomes ``(x - mean[d]) / scale[d]``; None leaves a step out.

    ``source`` is the object that they come from, None where the manifest has them.
    """

    mean: tuple[float, ...] | None
    scale: tuple[float, ...] | None
    source: ObjectInfo | None = None

    def apply(self, values: npt.NDArray[np.float64]) -> Float32s:
        """``values`` [n, D], which are overwritten, scaled in float64 and rounded once."""
        # What does not fit becomes Inf or NaN, which is counted with the other such values.
        with np.errstate(over="ignore", invalid="ignore"):
            if self.mean is not None:
                values -= np.asarray(self.mean)
            if self.scale is not None:
                values /= np.asarray(self.scale)
            return values.astype(np.float32)


def read_scaling(storage: Storage, given: FeatureScaling, width: int, field: str) -> Scaling:
    """The numbers that the manifest gives or points to, checked against ``width``.

    ``field`` is where the manifest has the features, for errors.

    Raises:
        ManifestError: the manifest's vectors have another length than the features.
        ObjectMissing: there is no object at ``uri``.
        InputError: the object is no json or npz with finite vectors of this length, or a scale
            is not positive.
    """
    if given.uri is not None:
        return _from_object(storage, given.uri, width)
    vectors = {"mean": given.mean, "scale": given.scale}
    wrong = [
        (f"{field}.scaling.{name}", _wrong_length(len(values), width))
        for name, values in vectors.items()
        if values is not None and len(values) != width
    ]
    if wrong:
        raise ManifestError(wrong)
    mean, scale = (None if values is None else tuple(values) for values in vectors.values())
    return Scaling(mean, scale)


def _wrong_length(found: int, width: int) -> str:
    return (
        f"has {found} value{'' if found == 1 else 's'}, but the features have width {width}; "
        "give one for each feature, in their order"
    )


def _from_object(storage: Storage, uri: str, width: int) -> Scaling:
    info = storage.stat(uri)
    if info is None:
        raise ObjectMissing(f"{uri} (features.scaling.uri) does not exist; check the uri")
    if info.size > _MOST_BYTES:
        raise InputError(
            f"{uri} (features.scaling.uri) has {info.size} bytes, too many for two vectors; {_HOW}"
        )
    with storage.open(uri, info) as file:
        vectors = _parse(uri, file.read())
    for name, values in vectors.items():
        _check_vector(f"{uri} (features.scaling.uri): {name}", name, values, width)
    return Scaling(vectors.get("mean"), vectors.get("scale"), info)


def _parse(uri: str, data: bytes) -> Vectors:
    """The object's vectors ``mean`` and ``scale``, at least one of them."""
    if data.startswith(b"\x80"):
        raise InputError(
            f"{uri} (features.scaling.uri) is a pickle, which is never loaded, since that could "
            f"run code; {_HOW}"
        )
    parse: Callable[[bytes], dict[str, Any]] = _npz if data.startswith(b"PK") else _json
    try:
        held = parse(data)
        found = {
            name: _vector(held[name]) for name in ("mean", "scale") if held.get(name) is not None
        }
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"{uri} (features.scaling.uri) is not readable as json or npz with lists of numbers "
            f"({error}); {_HOW}"
        ) from error
    if not found:
        raise InputError(f"{uri} (features.scaling.uri) has neither mean nor scale; {_HOW}")
    return found


def _npz(data: bytes) -> dict[str, Any]:
    with HEADERS, np.load(io.BytesIO(data), allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


def _json(data: bytes) -> dict[str, Any]:
    held = json.loads(data)
    if not isinstance(held, dict):
        raise TypeError(f"it holds a {type(held).__name__}")
    return held


def _vector(held: Any) -> tuple[float, ...]:
    array = np.asarray(held)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise TypeError(f"an array {list(array.shape)} of {array.dtype} is no list of numbers")
    return tuple(array.astype(np.float64).tolist())


def _check_vector(what: str, name: str, values: tuple[float, ...], width: int) -> None:
    if len(values) != width:
        raise InputError(f"{what} {_wrong_length(len(values), width)}")
    array = np.asarray(values)
    right = np.isfinite(array) & ((array > 0) | (name == "mean"))
    if not right.all():
        d = int(np.argmin(right))
        wanted = "a finite number" if name == "mean" else "a finite number above 0"
        raise InputError(f"{what}[{d}] is {values[d]}; it must be {wanted}")
