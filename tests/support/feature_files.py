"""Features on disk, read as a run reads them, for the tests of their readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.errors import InputError
from embertide.io.readers.feature_schema import feature_schema
from embertide.io.readers.features import read_features, split_features
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import FeatureInput


def feature_input(path: Path, form: str = "parquet", **fields: Any) -> FeatureInput:
    return FeatureInput.model_validate({"uri": f"file://{path}", "format": form, **fields})


def read_all(
    storage: Storage,
    features: FeatureInput,
    ids: Any = "dense",
    target: int = 1 << 20,
    batch: int = 1 << 20,
    count: int | None = None,
) -> tuple[list[Any], np.ndarray[Any, Any]]:
    """Ids and values of all batches; checks what every batch must be like."""
    schema = feature_schema(storage, features)
    found: list[Any] = []
    values = [np.empty((0, schema.width), np.float32)]
    for split in split_features(storage, features, target, ids, schema):
        for b in read_features(storage, features, ids, split, schema, batch, count):
            assert b.values.dtype == np.float32
            assert b.values.flags.c_contiguous
            assert b.values.flags.writeable
            assert len(b) == 1 or b.values.nbytes <= batch
            found += b.ids.tolist()
            values.append(b.values)
    return found, np.concatenate(values)


def refused(storage: Storage, features: FeatureInput, ids: Any = "dense", **kwargs: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_all(storage, features, ids, **kwargs)
    return str(caught.value)
