"""``import embertide``: reading what is published in one line, refusals with reasons."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

import embertide
from embertide.errors import ManifestError, ObjectMissing, OutputError
from embertide.io.storage.opening import open_storage
from embertide.io.versions.formats import FORMATS
from embertide.io.versions.parts import PartWriter
from embertide.io.versions.publish import publish, rollback
from embertide.spec import load_manifest
from tests.support.cli import JOB
from tests.support.paths import ROOT
from tests.support.patience import WAIT_SECONDS
from tests.support.versions import (
    CURRENT,
    NEXT,
    OLD,
    WIDTH,
    manifest_of,
    publish_one,
    values_of,
    write_parts,
)

NAMES = ["", "naïve", "日本", "x" * 300, "5"]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An output with two complete versions."""
    for version in (OLD, CURRENT):
        publish_one(open_storage(), f"file://{tmp_path}/out", version)
    return tmp_path / "out"


def isolated(code: str, *flags: str) -> str:
    """What a program of its own prints."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", *flags, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "worker")},
        check=False,
        timeout=WAIT_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def publish_as(output: Path, format: Any, kind: Any, dtype: Any, rows: tuple[int, ...]) -> Any:
    """Publish parts of random vectors; returns (ids, vectors) as they were written."""
    storage, uri = open_storage(), f"file://{output}"
    values = np.random.default_rng(3).normal(size=(sum(rows), WIDTH)).astype(np.float32)
    names: Any = NAMES if kind == "string" else np.arange(-2, 3)
    digests, start = [], 0
    for rank, count in enumerate(rows):
        held = slice(start, start + count)
        ids = pa.array(names[held], pa.large_string()) if kind == "string" else names[held]
        with PartWriter(
            storage, f"{uri}/versions/{OLD}/part-{rank:05d}",
            format=format, dtype=dtype, ids_kind=kind, width=WIDTH, rows=count,
        ) as writer:  # fmt: skip
            writer.write(ids, values[held])
        digests.append(writer.digest)
        start += count
    publish(storage, uri, OLD, manifest_of(digests), keep=1)
    return list(names), values.astype(dtype)


# Reading


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", ["int64", "string"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_form_reads_the_same(tmp_path: Path, format: str, kind: str, dtype: str) -> None:
    ids, vectors = publish_as(tmp_path, format, kind, dtype, rows=(3, 0, 2))
    found = embertide.read(tmp_path)
    assert len(found) == 5
    assert found.table.schema.field("embedding").type.list_size == WIDTH
    assert found.table["id"].to_pylist() == ids
    read_ids, read_vectors = found.to_numpy()
    assert read_ids.tolist() == ids
    assert read_vectors.dtype == np.dtype(dtype)
    assert read_vectors.flags.c_contiguous
    assert read_vectors.flags.writeable
    assert np.array_equal(read_vectors, vectors)


@pytest.mark.tier(2)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", ["int64", "string"])
def test_frames_have_ids_as_their_index(tmp_path: Path, format: str, kind: str) -> None:
    ids, vectors = publish_as(tmp_path, format, kind, "float32", rows=(3, 0, 2))
    frame = embertide.read(tmp_path).to_pandas()
    assert frame.shape == (5, WIDTH)
    assert np.array_equal(frame.loc[ids[1]], vectors[1])


def test_the_current_version_is_the_default(output: Path) -> None:
    assert np.array_equal(embertide.read(output).to_numpy()[1], values_of(CURRENT))
    assert np.array_equal(embertide.read(output, OLD).to_numpy()[1], values_of(OLD))
    rollback(open_storage(), f"file://{output}", OLD)
    found = embertide.read(output)
    assert np.array_equal(found.to_numpy()[1], values_of(OLD))
    assert (found.info.version, found.info.rows, found.info.dim) == (OLD, 7, WIDTH)
    assert repr(found).startswith("Embeddings(info=VersionInfo(version=")


def test_locations_are_as_on_the_command_line(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(output.parent)
    for location in ("out", "./out/", output, str(output), f"file://{output}"):
        assert len(embertide.read(location)) == 7


def test_versions_are_listed_oldest_first(output: Path) -> None:
    found = embertide.list_versions(output)
    assert [(info.version, info.current) for info in found] == [(OLD, False), (CURRENT, True)]
    assert np.array_equal(embertide.read(output, OLD).to_numpy()[1], values_of(OLD))
    assert embertide.list_versions(output.parent / "none") == []


def test_placeholders_of_a_job_are_filled_at_a_time(tmp_path: Path) -> None:
    text = JOB.replace("edges.parquet", f"'{tmp_path}/dt={{date-1d}}.parquet'")
    for name in ("x.parquet", "model}", "out}"):
        text = text.replace(f" {name}", f" {tmp_path}/{name}")
    for job in (text, yaml.safe_load(text)):
        with pytest.raises(ObjectMissing, match=r"/dt=2026-11-21\.parquet"):
            embertide.plan(job, at="2026-11-22T00:30", time_zone="Europe/Berlin")
        with pytest.raises(ManifestError, match=r"\{date-1d\} is a placeholder: .* --at"):
            embertide.plan(job)
    made = load_manifest(text)
    for take in (embertide.plan, embertide.run):
        with pytest.raises(ManifestError, match=r"spec\.input\.edges\.0\.uri: \{date-1d\} is a"):
            take(made)
    with pytest.raises(ValueError, match="at is 'tomorrow'; must be now, or a time"):
        embertide.plan(text, at="tomorrow")
    with pytest.raises(ValueError, match="this is an EmbeddingJob"):
        embertide.plan(embertide.EmbeddingJob.model_construct(), at="now")


@pytest.mark.tier(2)
def test_other_libraries_take_it_as_it_is(output: Path) -> None:
    import duckdb
    import polars as pl

    embeddings = embertide.read(output)
    vectors = values_of(CURRENT)
    assert np.array_equal(pl.DataFrame(embeddings)["embedding"].to_numpy(), vectors)
    assert pa.table(embeddings) == embeddings.table
    rows = duckdb.sql("SELECT id, embedding FROM embeddings WHERE id = 6").fetchall()
    assert rows == [(6, tuple(vectors[6].tolist()))]


# Refusals


def test_nothing_was_published(tmp_path: Path) -> None:
    with pytest.raises(ObjectMissing, match=rf"nothing was published to file://{tmp_path}/out yet"):
        embertide.read(tmp_path / "out")


@pytest.mark.parametrize("version", [NEXT, "nonsense", "../.."])
def test_an_unknown_or_incomplete_version(output: Path, version: str) -> None:
    write_parts(open_storage(), f"file://{output}", NEXT)
    message = rf"has no complete version {version}; it has {OLD}, {CURRENT}"
    with pytest.raises(embertide.EmbertideError, match=message):
        embertide.read(output, version)


@pytest.mark.parametrize("damage", ["truncated", "missing", "another part's"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_damaged_part_is_named(tmp_path: Path, format: str, damage: str) -> None:
    publish_one(open_storage(), f"file://{tmp_path}", OLD, format=format)
    part = tmp_path / f"versions/{OLD}/part-00001.{format}"
    if damage == "truncated":
        part.write_bytes(part.read_bytes()[:40])
    elif damage == "missing":
        part.unlink()
    else:
        part.write_bytes(part.with_name(f"part-00000.{format}").read_bytes())
    with pytest.raises(OutputError, match=rf"{part} of a published version is missing or damaged"):
        embertide.read(tmp_path)


def test_malformed_locations_and_settings(output: Path) -> None:
    with pytest.raises(ValueError, match="output's location is 'gs://x'; gs:// is not supported"):
        embertide.read("gs://x")
    with pytest.raises(ValueError, match="endpoint_url is 'minio:9000'; must be"):
        embertide.read(output, endpoint_url="minio:9000")


def test_malformed_jobs_and_grids(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"no such file; give the path of a manifest"):
        embertide.plan(tmp_path / "job.yaml")
    with pytest.raises(ManifestError, match=r"kind: is 'Job'; must be 'EmbeddingJob'"):
        embertide.run({"kind": "Job"})
    job = embertide.EmbeddingJob.model_construct()
    with pytest.raises(ValueError, match="'2y2' must be GRAPHxFEATURE"):
        embertide.plan(job, grid="2y2")
    with pytest.raises(ValueError, match="workers is 3, but the grid 2x2 has 4; leave one"):
        embertide.run(job, grid="2x2", workers=3)


# What it costs


def test_the_version_of_the_package_needs_nothing_installed() -> None:
    code = "import embertide, sys; print(embertide.__version__, 'pydantic' in sys.modules)"
    assert isolated(code, "-S").split() == [embertide.__version__, "False"]


def test_reading_loads_no_torch(output: Path) -> None:
    code = f"""
import sys, embertide
embertide.list_versions({str(output)!r})
embertide.read({str(output)!r}).to_numpy()
print(sorted({{"torch", "boto3", "psutil"}} & set(sys.modules)))
"""
    assert isolated(code) == "[]\n"


def test_every_name_is_there_and_no_other() -> None:
    for name in embertide.__all__:
        assert getattr(embertide, name).__name__ == name
        assert name in dir(embertide)
    with pytest.raises(AttributeError, match="'embertide' has no attribute 'reed'"):
        embertide.reed  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.tier(2)
def test_types_reach_those_who_import_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import embertide\n"
        "ids, vectors = embertide.read('out', region='eu-west-1').to_numpy()\n"
        "rows: int = embertide.list_versions('out')[-1].rows\n"
        "peak: int = embertide.plan({}, grid='2x2').peak_memory_per_worker_bytes\n"
        "name: str = embertide.run('job.yaml', workers=2).version\n"
        "wrong: str = embertide.list_versions('out')[-1].rows\n"
    )
    # What mypy knows of packages, and of our files as they are, all checkouts share.
    cache = Path.home() / ".cache" / "embertide" / "mypy-of-programs"
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--output=json",
         f"--cache-dir={cache}", str(program)],
        capture_output=True, text=True, check=False, timeout=WAIT_SECONDS,
        env=os.environ | {"MYPYPATH": str(ROOT / "worker")}, cwd=tmp_path,
    )  # fmt: skip
    problems = [json.loads(line) for line in checked.stdout.splitlines()]
    assert [(problem["line"], problem["code"]) for problem in problems] == [(6, "assignment")]


def test_no_package_has_the_name_of_a_function() -> None:
    """Once it is imported it would stand in the function's place."""
    names = {module.name for module in pkgutil.iter_modules(embertide.__path__)}
    assert names.isdisjoint(embertide.__all__)
