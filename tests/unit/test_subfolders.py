"""Objects in subfolders: refused with the remedy, or read where the manifest says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.errors import InputError, ObjectMissing
from embertide.planning.inputs import list_inputs
from embertide.readers.edges import split_edges
from embertide.readers.features import split_features
from embertide.readers.nodes import split_nodes
from embertide.readers.splits import Split
from embertide.spec.manifest import EdgeInput, FeatureInput, NodeTable, load_manifest
from embertide.storage.protocol import Storage
from tests.support.edge_files import EDGES, edge_input, read_all, rows_of, write_parquet
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


@pytest.mark.parametrize("kind", READERS)
def test_hidden_subfolders_and_empty_ones_are_nothing(
    tmp_path: Path, storage: Storage, kind: str
) -> None:
    for name in ("a.parquet", "_old/b.parquet", ".cache/b.parquet", "sub/_b.parquet", "_SUCCESS"):
        write(tmp_path / name)
    (tmp_path / "empty").mkdir()
    for recursive in (False, True):
        found = READERS[kind](storage, f"file://{tmp_path}", recursive=recursive)
        assert [split.uri for split in found] == [f"file://{tmp_path}/a.parquet"]


def test_one_object_is_itself(tmp_path: Path, storage: Storage) -> None:
    write(tmp_path / "dt=2026-11-20/a.parquet")
    for recursive in (False, True):
        uri = f"file://{tmp_path}/dt=2026-11-20/a.parquet"
        assert [split.uri for split in edges(storage, uri, recursive=recursive)] == [uri]
    with pytest.raises(ObjectMissing):
        edges(storage, f"file://{tmp_path}/dt=2026-11-21", recursive=True)


def test_partitions_are_read_whole(tmp_path: Path, storage: Storage) -> None:
    source, destination = np.array(EDGES).T
    for day, part in {"20": slice(0, 400), "21": slice(400, None)}.items():
        path = tmp_path / f"edges/dt=2026-11-{day}/part.parquet"
        write_parquet(path, src=source[part], dst=destination[part])
    folder = tmp_path / "edges"
    assert rows_of(read_all(storage, edge_input(folder, "parquet", recursive=True))) == EDGES
    with pytest.raises(InputError, match=r"dt=2026-11-20/part\.parquet lies in a subfolder"):
        rows_of(read_all(storage, edge_input(folder, "parquet")))
    one_day = edge_input(folder / "dt=2026-11-20", "parquet")
    assert rows_of(read_all(storage, one_day)) == EDGES[:400]


def test_npy_values_and_ids_are_paired_below(tmp_path: Path, storage: Storage) -> None:
    for name in ("a.npy", "sub/b.npy"):
        for kind in ("x", "ids"):
            path = tmp_path / kind / name
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.ones((2, 3)) if kind == "x" else np.arange(2))
    given = {
        "uri": f"file://{tmp_path}/x",
        "format": "npy",
        "idsUri": f"file://{tmp_path}/ids",
    }
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
