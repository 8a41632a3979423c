"""Objects in subfolders: refused with the remedy, or read where the manifest says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.engine.planning.inputs import list_inputs
from embertide.errors import InputError, ObjectMissing
from embertide.io.readers.edges import split_edges
from embertide.io.readers.features import split_features
from embertide.io.readers.layout import hive_constants
from embertide.io.readers.nodes import split_nodes
from embertide.io.readers.objects import list_objects
from embertide.io.readers.splits import Split
from embertide.io.storage.protocol import Listing, ObjectInfo, Storage
from embertide.spec.manifest import EdgeInput, FeatureInput, NodeTable, load_manifest
from tests.support.edge_files import write_parquet
from tests.support.small_job import SmallJob


def write(path: Path) -> None:
    write_parquet(path, src=[0, 1], dst=[1, 0], id=[0, 1], x=[[0.5], [1.5]])


def edges(storage: Storage, uri: str, **more: Any) -> list[Split]:
    given = {"uri": uri, "format": "parquet", **more}
    return split_edges(storage, EdgeInput.model_validate(given))


def features(storage: Storage, uri: str, **more: Any) -> list[Split]:
    given = {"uri": uri, "vectorColumn": "x", **more}
    return split_features(storage, FeatureInput.model_validate(given))


def table(storage: Storage, uri: str, **more: Any) -> list[Split]:
    return split_nodes(storage, NodeTable.model_validate({"uri": uri, **more}))


READERS = {"edges": edges, "features": features, "table": table}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("end", ["", "/", "//", "/."])
def test_a_subfolder_is_refused_or_read(
    tmp_path: Path, storage: Storage, kind: str, end: str
) -> None:
    reader: Callable[..., list[Split]] = READERS[kind]
    folder = f"file://{tmp_path}/data"
    for name in ("b.parquet", "a.parquet", "old/b.parquet", "old/older/b.parquet"):
        write(tmp_path / "data" / name)
    with pytest.raises(InputError) as caught:
        reader(storage, folder + end)
    assert str(caught.value) == (
        f"{folder}/old/b.parquet lies in a subfolder of {folder}{end} (2 of 4 objects do); set "
        f"recursive: true ({kind}.recursive) to read them too, else move them or narrow the uri"
    )
    found = [split.uri for split in reader(storage, folder + end, recursive=True)]
    names = ("a.parquet", "b.parquet", "old/b.parquet", "old/older/b.parquet")
    assert found == [f"{folder}/{name}" for name in names]


def test_one_object_is_itself(tmp_path: Path, storage: Storage) -> None:
    write(tmp_path / "dt=2026-11-20/a.parquet")
    for recursive in (False, True):
        uri = f"file://{tmp_path}/dt=2026-11-20/a.parquet"
        assert [split.uri for split in edges(storage, uri, recursive=recursive)] == [uri]
    with pytest.raises(ObjectMissing):
        edges(storage, f"file://{tmp_path}/dt=2026-11-21", recursive=True)


def test_npy_values_and_ids_are_paired_below(tmp_path: Path, storage: Storage) -> None:
    for name in ("a.npy", "sub/b.npy"):
        for kind in ("x", "ids"):
            path = tmp_path / kind / name
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.ones((2, 3)) if kind == "x" else np.arange(2))
    given = {"uri": f"file://{tmp_path}/x", "format": "npy", "idsUri": f"file://{tmp_path}/ids"}
    read = FeatureInput.model_validate(given | {"recursive": True})
    assert [(s.uri[-9:], str(s.ids_uri)[-9:]) for s in split_features(storage, read)] == [
        (f"{tmp_path}/x/a.npy"[-9:], f"{tmp_path}/ids/a.npy"[-9:]),
        ("sub/b.npy", "sub/b.npy"),
    ]
    (tmp_path / "x/sub/b.npy").unlink()
    with pytest.raises(InputError, match=r"ids/sub/b\.npy lies in a subfolder of .*/ids "):
        split_features(storage, FeatureInput.model_validate(given))


def test_a_job_does_not_read_a_copy_beside_its_edges(tmp_path: Path, storage: Storage) -> None:
    job = SmallJob.make(tmp_path)
    copy = job.edges.parent / "backup" / job.edges.name
    copy.parent.mkdir()
    copy.write_bytes(job.edges.read_bytes())
    with pytest.raises(InputError, match=r"backup/part\.parquet lies in a subfolder"):
        list_inputs(storage, load_manifest(Path(job.manifest)))


class OfKeys:
    """What a store of keys lists: unlike files, a key may be the beginning of others."""

    def __init__(self, *keys: str) -> None:
        self.objects = [ObjectInfo(f"s3://b/{key}", 0 if key < "e/y" else 9, "") for key in keys]

    def scan(self, uri: str) -> Listing:
        exact = [info for info in self.objects if info.uri == uri]
        below = [info for info in self.objects if info.uri.startswith(uri.rstrip("/") + "/")]
        if not exact and not below:
            raise ObjectMissing(uri)
        return Listing(exact or below, [])


def test_an_empty_object_with_the_name_of_a_folder() -> None:
    """Some clients write one for each folder; as csv without a header it would hold no edges."""

    def listed(*keys: str) -> list[str]:
        store: Any = OfKeys(*keys)
        return [info.uri for info in list_objects(store, "s3://b/e", True, "edges.recursive")]

    assert listed("e", "e/x", "e/yy/a.csv") == ["s3://b/e/x", "s3://b/e/yy/a.csv"]
    assert listed("e", "e/u", "e/u/v", "e/yy") == ["s3://b/e/u/v", "s3://b/e/yy"]
    assert listed("e") == ["s3://b/e"]


def test_the_columns_of_a_uri() -> None:
    uri = "s3://shop/edges/dt=2026-11-25/a%20b=c%2Fd%3D/n=__HIVE_DEFAULT_PARTITION__/n=/x=1.parquet"
    assert hive_constants(uri) == {"dt": "2026-11-25", "a b": "c/d=", "n": ""}
    assert hive_constants("s3://shop/n=__HIVE_DEFAULT_PARTITION__/x") == {"n": None}
    assert hive_constants("s3://bucket/=x/part.parquet") == {}
