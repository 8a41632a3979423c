"""Features scaled as training did: every format gives (x - mean) / scale, and bad ones an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.engine.planning.inputs import Inputs, NodeSplits
from embertide.engine.stages.publish import describe_features
from embertide.errors import ManifestError
from embertide.io.readers.feature_schema import feature_schema
from embertide.io.readers.features import non_finite, read_features, split_features
from embertide.io.storage.protocol import Storage
from embertide.spec.manifest import FeatureInput, NodeInput
from tests.support.feature_files import feature_input, read_all

MEAN, SCALE = [1.7e9, -0.25, 0.5], [86400.0, 1e-3, 0.1]
RNG = np.random.default_rng(6)
RAW = RNG.standard_normal((40, 3)) * SCALE + MEAN
RAW[:, 0] = RAW[:, 0].round()
SCALED = ((RAW - MEAN) / SCALE).astype(np.float32)
FORMS = ("columns", "vector", "npy")


def write(folder: Path, form: str, values: Any = RAW) -> dict[str, Any]:
    """Write features; the fields of the manifest that read them."""
    folder.mkdir()
    if form == "npy":
        np.save(folder / "x.npy", values)
        return {"form": "npy"}
    ids = np.arange(len(values))
    if form == "columns":
        # Seconds are integers, as people have them.
        seconds = values[:, 0].astype(np.int64)
        table = {"id": ids, "t": seconds, "f1": values[:, 1], "f2": values[:, 2]}
        pq.write_table(pa.table(table), folder / "x.parquet", row_group_size=7)
        return {"columns": ["t", "f*"]}
    vectors = pa.array(values.tolist(), pa.list_(pa.float64()))
    pq.write_table(pa.table({"id": ids, "x": vectors}), folder / "x.parquet", row_group_size=7)
    return {"vectorColumn": "x"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given", ["manifest", "json", "npz"])
def test_values_are_scaled_in_float64_and_rounded_once(
    tmp_path: Path, storage: Storage, form: str, given: str
) -> None:
    fields = write(tmp_path / "x", form)
    scaling: dict[str, Any] = {"uri": f"file://{tmp_path}/scaler.{given}"}
    if given == "manifest":
        scaling = {"mean": MEAN, "scale": SCALE}
    elif given == "json":
        (tmp_path / "scaler.json").write_text(json.dumps({"mean": MEAN, "scale": SCALE}))
    else:
        np.savez(tmp_path / "scaler.npz", mean=MEAN, scale=SCALE)
    features = feature_input(tmp_path / "x", **fields, scaling=scaling)
    _, values = read_all(storage, features, target=1, batch=100)
    np.testing.assert_array_equal(values, SCALED)


def test_float32_features_stay_as_they_are_without_a_scaling(
    tmp_path: Path, storage: Storage
) -> None:
    raw = RAW.astype(np.float32)
    _, values = read_all(
        storage, feature_input(tmp_path / "x", **write(tmp_path / "x", "npy", raw))
    )
    np.testing.assert_array_equal(values, raw)


def test_what_overflows_is_counted_as_not_finite(tmp_path: Path, storage: Storage) -> None:
    fields = write(tmp_path / "x", "npy", np.array([[1.0, 0.0], [2.0, 0.0], [np.inf, 0.0]]))
    scaling = {"mean": [1, 0], "scale": [1e-300, 1]}
    features = feature_input(tmp_path / "x", **fields, scaling=scaling)
    (split,) = split_features(storage, features)
    (batch,) = read_features(storage, features, "dense", split)
    assert non_finite(batch) == (2, 1)


# ---- bad scalings


def test_a_manifest_with_too_few(tmp_path: Path, storage: Storage) -> None:
    fields = write(tmp_path / "x", "vector")
    features = feature_input(tmp_path / "x", **fields, scaling={"mean": [1, 2], "scale": [3, 4]})
    with pytest.raises(ManifestError) as caught:
        feature_schema(storage, features)
    message = "has 2 values, but the features have width 3; give one for each feature, in their"
    assert caught.value.problems == [
        (f"spec.input.nodes[0].features.scaling.{name}", f"{message} order")
        for name in ("mean", "scale")
    ]


# ---- what ranks and readers are told


def test_inputs_carry_columns_and_scaling_through_json(tmp_path: Path, storage: Storage) -> None:
    fields = write(tmp_path / "x", "columns")
    np.savez(tmp_path / "s.npz", mean=MEAN, scale=SCALE)
    uri = f"file://{tmp_path}/s.npz"
    features = feature_input(tmp_path / "x", **fields, scaling={"uri": uri})
    schema = feature_schema(storage, features)
    splits = NodeSplits(split_features(storage, features, schema=schema), [], schema)
    inputs = Inputs({}, {"node": splits})
    assert Inputs.from_json(json.loads(json.dumps(inputs.to_json()))) == inputs
    assert inputs.width == 3
    info = storage.stat(uri)
    assert info is not None
    entry = {"kind": "scaling", "uri": uri, "size": info.size, "etag": info.etag}
    assert inputs.objects()[-1] == entry


def test_a_version_says_what_it_was_made_from(tmp_path: Path, storage: Storage) -> None:
    given = {"mean": MEAN, "scale": SCALE}
    columns = feature_input(tmp_path / "c", **write(tmp_path / "c", "columns"), scaling=given)
    assert described(storage, columns) == {
        "width": 3,
        "columns": ["t", "f1", "f2"],
        "scaling": {"mean": MEAN, "scale": SCALE},
    }
    vector = feature_input(tmp_path / "v", **write(tmp_path / "v", "vector"))
    assert described(storage, vector) == {"width": 3, "vectorColumn": "x"}
    (tmp_path / "s.json").write_text(json.dumps({"scale": SCALE}))
    uri = f"file://{tmp_path}/s.json"
    npy = feature_input(tmp_path / "n", **write(tmp_path / "n", "npy"), scaling={"uri": uri})
    assert described(storage, npy) == {"width": 3, "scaling": {"uri": uri, "scale": SCALE}}


def test_vectors_and_columns_in_the_manifest(tmp_path: Path, storage: Storage) -> None:
    pq.write_table(pa.table({"id": [0], "x": [[1.0, 2.0]], "a": [3]}), tmp_path / "f.parquet")
    both = FeatureInput.model_validate(
        {"uri": f"file://{tmp_path}/f.parquet", "vectorColumn": "x", "columns": ["a"]}
    )
    assert described(storage, both) == {"width": 3, "columns": ["a"], "vectorColumn": "x"}


def described(storage: Storage, features: FeatureInput) -> Any:
    """As it stands in the version's manifest."""
    node = NodeInput(count=3, features=features)
    return json.loads(json.dumps(describe_features(node, feature_schema(storage, features))))
