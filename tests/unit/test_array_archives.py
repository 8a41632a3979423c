"""One array of an npz, or tensor of what torch.save wrote, as features and as edges."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embertide.errors import InputChanged, InputError
from embertide.io.readers.features import read_features, split_features
from embertide.io.readers.splits import Split
from embertide.io.storage.protocol import Storage
from embertide.spec.features import FeatureInput
from tests.support.edge_files import EDGES, edge_input, read_all, refused, rows_of

X = np.random.default_rng(3).random((50, 7)).astype(np.float32)
ENDS = np.array(EDGES)


def feature_input(path: Path, key: str | None = None) -> FeatureInput:
    return FeatureInput.model_validate({"uri": f"file://{path}", "format": "npy", "key": key})


def features_of(storage: Storage, path: Path, key: str | None = None, target: int = 300) -> Any:
    features = feature_input(path, key)
    splits = [
        Split.from_json(split.to_json()) for split in split_features(storage, features, target)
    ]
    return np.concatenate(
        [
            batch.values
            for split in splits
            for batch in read_features(storage, features, "dense", split)
        ]
    )


def saved(path: Path, value: Any) -> Path:
    torch.save(value, path)
    return path


def zipped(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


T = torch.from_numpy(X)
WIDE = torch.from_numpy(np.concatenate([X, X]))
FEATURES = {
    "npz of one": (lambda path: zipped(path / "x.npz", x=X), None),
    "npz": (lambda path: zipped(path / "x.npz", y=X[:3], x=X), "x"),
    "npz in Fortran order": (lambda path: zipped(path / "x.npz", x=np.asfortranarray(X)), "x"),
    "a tensor": (lambda path: saved(path / "x.pt", T), None),
    "a dict": (lambda path: saved(path / "x.pt", {"y": T[:3], "x": T}), "x"),
    "a parameter in dicts": (
        lambda path: saved(path / "x.pt", {"a": {"x": torch.nn.Parameter(T)}, "y": T}),
        "a.x",
    ),
    "a tuple": (lambda path: saved(path / "x.pt", (T[:3], T)), "1"),
    "a part of a tensor": (lambda path: saved(path / "x.pt", {"x": WIDE[50:]}), "x"),
    "transposed": (lambda path: saved(path / "x.pt", {"x": T.t().contiguous().t()}), "x"),
    "doubles": (lambda path: saved(path / "x.pt", {"x": T.double()}), "x"),
    "beside objects": (lambda path: saved(path / "x.pt", {"x": T, "path": path}), "x"),
}


@pytest.mark.parametrize("kind", FEATURES)
@pytest.mark.parametrize("target", [300, 1 << 30])
def test_features(tmp_path: Path, storage: Storage, kind: str, target: int) -> None:
    write, key = FEATURES[kind]
    assert np.array_equal(features_of(storage, write(tmp_path), key, target), X)


@pytest.mark.parametrize("key", ["e", "edge_index"])
@pytest.mark.parametrize("form", ["npz", "pt"])
@pytest.mark.parametrize("target", [900, 1 << 30])
def test_edges(tmp_path: Path, storage: Storage, key: str, form: str, target: int) -> None:
    """As rows ``[E, 2]``, and as PyG has them, ``[2, E]``."""
    arrays = {"e": ENDS, "edge_index": np.ascontiguousarray(ENDS.T), "x": X}
    if form == "npz":
        path = zipped(tmp_path / "e.npz", **arrays)
    else:
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        path = saved(tmp_path / "e.pt", tensors)
    edges = edge_input(path, "npy", key=key)
    assert rows_of(read_all(storage, edges, target=target)) == EDGES


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("made-by-the-file",)


class Crooked:
    def __reduce__(self) -> tuple[Any, ...]:
        return torch._utils._rebuild_tensor_v2, ("a storage", 0, (50, -7), (7, 1))


def compressed(path: Path) -> Path:
    np.savez_compressed(path, x=X)
    return path


def sparse(path: Path) -> Path:
    import scipy.sparse

    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(X))
    return path


REFUSED = {
    "several": (
        lambda path: zipped(path / "x.npz", x=X, y=X),
        None,
        "x.npz holds several arrays: set key to one of 'x', 'y'",
    ),
    "another key": (
        lambda path: saved(path / "x.pt", {"x": T, "y": T}),
        "z",
        "x.pt has no 'z' (key) of 'x', 'y'",
    ),
    "compressed": (
        lambda path: compressed(path / "x.npz"),
        "x",
        "x.npy is compressed, and cannot be read in parts; save it with numpy.savez, not",
    ),
    "sparse": (
        lambda path: sparse(path / "x.npz"),
        None,
        "is a sparse matrix of scipy; write the matrix m as rows by numpy.save(..., m.toarray())",
    ),
    "objects": (lambda path: saved(path / "x.pt", Evil()), None, "holds no tensors in dicts"),
    "a length below 0": (
        lambda path: saved(path / "x.pt", Crooked()),
        None,
        "is not readable as npz or as a file of torch (a tensor has no shape)",
    ),
    "bfloat16": (
        lambda path: saved(path / "x.pt", {"x": T.bfloat16()}),
        "x",
        "a tensor [50, 7] of BFloat16 is no array of numpy; save it as float32 or int64",
    ),
    "a view": (
        lambda path: saved(path / "x.pt", {"x": WIDE[::2]}),
        "x",
        "a tensor [50, 7] is a view of parts of another one; save x.contiguous()",
    ),
    "three dimensions": (
        lambda path: saved(path / "x.pt", {"x": T.reshape(5, 10, 7)}),
        "x",
        "has shape (5, 10, 7) and dtype float32; it must be a list of rows",
    ),
    "a key of npy": (
        lambda path: np.save(path / "x.npy", X) or path / "x.npy",
        "x",
        "x.npy is no npz or file of torch, which have keys; omit key",
    ),
}


@pytest.mark.parametrize(
    "kind", [*filter("sparse".__ne__, REFUSED), pytest.param("sparse", marks=pytest.mark.tier(2))]
)
def test_what_is_refused(
    tmp_path: Path, storage: Storage, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write, key, message = REFUSED[kind]
    with pytest.raises(InputError) as caught:
        features_of(storage, write(tmp_path), key)
    assert message in str(caught.value)
    assert not (tmp_path / "made-by-the-file").exists()


@pytest.mark.parametrize("form", ["npz", "pt"])
def test_damage(tmp_path: Path, storage: Storage, form: str) -> None:
    """Any end, and any byte of the parts that say where values lie, ends in one of our errors."""
    write = FEATURES["npz" if form == "npz" else "a dict"][0]
    path = write(tmp_path)
    whole = path.read_bytes()
    damaged = [whole[:keep] for keep in range(4, len(whole), 97)]
    damaged += [whole[:at] + b"\xff" + whole[at + 1 :] for at in range(4, len(whole), 61)]
    for data in damaged:
        path.write_bytes(data)
        with suppress(InputError, InputChanged):
            features_of(storage, path, "x")


def test_edges_that_may_be_either(tmp_path: Path, storage: Storage) -> None:
    path = zipped(tmp_path / "e.npz", e=np.zeros((2, 2), np.int64))
    assert "may be [2, edges] or [edges, 2]" in refused(storage, edge_input(path, "npy"))


def test_keys_are_for_npy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only format npy has keys"):
        edge_input(tmp_path, "parquet", key="x")
