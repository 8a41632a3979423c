"""Features scaled as training did: every format gives (x - mean) / scale, and bad ones an error."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import ManifestError, ObjectMissing
from embertide.planning.inputs import Inputs, NodeSplits
from embertide.readers.feature_schema import feature_schema
from embertide.readers.features import non_finite, read_features, split_features
from embertide.spec.manifest import FeatureInput, NodeInput
from embertide.stages.publish import describe_features
from embertide.storage.protocol import Storage
from tests.support.feature_files import feature_input, read_all, refused

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


@pytest.mark.parametrize("form", FORMS)
def test_a_mean_or_a_scale_alone(tmp_path: Path, storage: Storage, form: str) -> None:
    fields = write(tmp_path / "x", form)
    _, values = read_all(storage, feature_input(tmp_path / "x", **fields, scaling={"mean": MEAN}))
    np.testing.assert_array_equal(values, (RAW - MEAN).astype(np.float32))
    np.savez(tmp_path / "s.npz", scale=SCALE)
    by_file = {"uri": f"file://{tmp_path}/s.npz"}
    _, values = read_all(storage, feature_input(tmp_path / "x", **fields, scaling=by_file))
    np.testing.assert_array_equal(values, (RAW / SCALE).astype(np.float32))


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


def bad_object(tmp_path: Path, storage: Storage, data: bytes) -> str:
    fields = write(tmp_path / "x", "npy") if not (tmp_path / "x").exists() else {"form": "npy"}
    path = tmp_path / "scaler"
    path.write_bytes(data)
    features = feature_input(tmp_path / "x", **fields, scaling={"uri": f"file://{path}"})
    message = refused(storage, features)
    prefix = f"file://{path} (features.scaling.uri)"
    assert message.startswith(prefix)
    return message.removeprefix(prefix)


def npz(tmp_path: Path, **arrays: Any) -> bytes:
    path = tmp_path / "arrays.npz"
    np.savez(path, **arrays)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ({"mean": [1, 2]}, ": mean has 2 values, but the features have width 3; give one for"),
        ({"mean": MEAN, "scale": [1]}, ": scale has 1 value, but the features have width 3"),
        ({"scale": [1, 0, 1]}, ": scale[1] is 0.0; it must be a finite number above 0"),
        ({"scale": [1, 1, -2]}, ": scale[2] is -2.0; it must be a finite number above 0"),
        ({"scale": [float("nan"), 1, 1]}, ": scale[0] is nan; it must be a finite number above 0"),
        ({"mean": [0, float("inf"), 1]}, ": mean[1] is inf; it must be a finite number"),
        ({"mean_": MEAN}, " has neither mean nor scale; write json, or numpy.savez with arrays"),
        ({"mean": 3}, "an array [] of int64 is no list of numbers"),
        ({"mean": [[1, 2, 3]]}, "an array [1, 3] of int64 is no list of numbers"),
        ({"mean": ["1", "2", "3"]}, "is no list of numbers"),
    ],
)
def test_bad_vectors(tmp_path: Path, storage: Storage, held: dict[str, Any], says: str) -> None:
    assert says in bad_object(tmp_path, storage, json.dumps(held).encode())
    assert says in bad_object(tmp_path, storage, npz(tmp_path, **held))


def test_bad_objects(tmp_path: Path, storage: Storage) -> None:
    assert "is a pickle, which is never loaded" in bad_object(
        tmp_path, storage, pickle.dumps({"mean": MEAN})
    )
    objects = npz(tmp_path, mean=np.array([1, "2", None], object))
    assert "allow_pickle=False" in bad_object(tmp_path, storage, objects)
    whole = npz(tmp_path, mean=MEAN)
    np.savez_compressed(tmp_path / "small.npz", mean=np.arange(3.0))
    small = bytearray((tmp_path / "small.npz").read_bytes())
    # Into the compressed values.
    small[60:64] = b"\xff\xff\xff\xff"
    for data in (b"", b"[1, 2]", b"mean", b"\xff\xfe", whole[:60], bytes(small)):
        assert " is not readable as json or npz with lists of numbers (" in bad_object(
            tmp_path, storage, data
        )
    assert "has 16777217 bytes, too many" in bad_object(tmp_path, storage, bytes(2**24 + 1))


def test_a_missing_object(tmp_path: Path, storage: Storage) -> None:
    fields = write(tmp_path / "x", "npy")
    scaling = {"uri": f"file://{tmp_path}/none.npz"}
    features = feature_input(tmp_path / "x", **fields, scaling=scaling)
    with pytest.raises(ObjectMissing, match=r"none\.npz \(features.scaling.uri\) does not exist"):
        feature_schema(storage, features)


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
