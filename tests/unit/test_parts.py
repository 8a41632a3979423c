"""Parts: what is written is what other tools read, and what we read back; damage is found."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import OutputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.formats import FORMATS
from embertide.io.versions.parts import PartDigest, PartWriter
from embertide.io.versions.reading import last_id, read_part
from embertide.io.versions.rows import ID_COLUMN, VECTOR_COLUMN, schema_of
from embertide.io.versions.sinks import HashedSink

WORDS = ["", "naïve", "a" * 300, "日本", "x"]
CASES = [(f, i, d) for f in FORMATS for i in ("int64", "string") for d in (32, 16)]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return f"file://{tmp_path}/v"


def files(folder: str) -> list[str]:
    """Hidden ones too."""
    path = Path(folder.removeprefix("file://"))
    return sorted(file.name for file in path.iterdir()) if path.exists() else []


def path_of(folder: str, name: str) -> Path:
    return Path(folder.removeprefix("file://")) / name


def some_ids(kind: str, rows: int) -> Any:
    if kind == "int64":
        return np.random.default_rng(1).integers(-(2**62), 2**62, rows)
    return pa.array([WORDS[i % 5] + str(i) for i in range(rows)], pa.large_string())


def some_values(rows: int, width: int = 4) -> npt.NDArray[np.float32]:
    return np.random.default_rng(2).normal(size=(rows, width)).astype(np.float32)


def write(
    storage: Storage, folder: str, ids: Any, values: npt.NDArray[np.float32],
    format: Any = "parquet", dtype: Any = "float32", step: int = 3,
) -> PartWriter:  # fmt: skip
    kind: Any = "int64" if isinstance(ids, np.ndarray) else "string"
    rows, width = values.shape
    uri = f"{folder}/part-00000"
    with PartWriter(
        storage, uri, format=format, dtype=dtype, ids_kind=kind, width=width, rows=rows
    ) as writer:
        for at in range(0, rows, step):
            writer.write(ids[at : at + step], values[at : at + step])
    return writer


def read(
    storage: Storage, folder: str, part: PartDigest, width: int = 4
) -> tuple[list[Any], npt.NDArray[np.float32]]:
    batches = list(read_part(storage, folder, part, width))
    ids = [one for batch, _ in batches for one in batch.tolist()]
    return ids, np.concatenate([np.empty((0, width), np.float32), *(v for _, v in batches)])


@pytest.mark.parametrize(("format", "kind", "bits"), CASES)
@pytest.mark.parametrize("rows", [0, 1, 10])
def test_what_is_written_is_read_back(
    storage: Storage, folder: str, format: str, kind: str, bits: int, rows: int
) -> None:
    ids, values = some_ids(kind, rows), some_values(rows)
    writer = write(storage, folder, ids, values, format, f"float{bits}")
    writer.verify()
    digest = writer.digest
    assert digest.rows == rows
    assert files(folder) == sorted(name for name, _, _ in digest.objects())
    found, back = read(storage, folder, digest)
    assert found == ids.tolist()
    right = values if bits == 32 else values.astype(np.float16).astype(np.float32)
    assert back.dtype == np.float32
    assert np.array_equal(back, right)
    if rows:
        assert last_id(storage, folder, digest).tolist() == found[-1:]
    for batch, _ in read_part(storage, folder, digest, 4):
        is_array = isinstance(batch, np.ndarray)
        assert batch.dtype == np.int64 if is_array else batch.type == pa.large_string()


@pytest.mark.parametrize("format", FORMATS)
def test_digests_are_of_the_bytes_in_the_store(storage: Storage, folder: str, format: str) -> None:
    digest = write(storage, folder, some_ids("string", 9), some_values(9), format).digest
    assert len(digest.objects()) == (1 if format == "parquet" else 2)
    for name, size, sha256 in digest.objects():
        data = path_of(folder, name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (size, sha256)
    assert pickle.loads(pickle.dumps(digest)) == digest  # noqa: S301


def test_parquet_as_other_tools_see_it(storage: Storage, folder: str) -> None:
    values = some_values(5)
    digest = write(storage, folder, some_ids("string", 5), values).digest
    assert digest == replace(digest, name="part-00000.parquet", ids_name=None)
    table = pq.read_table(path_of(folder, digest.name))
    assert table.column_names == ["id", "embedding"]
    assert table.schema.field("id").type == pa.large_string()
    kind = table.schema.field("embedding").type
    assert pa.types.is_fixed_size_list(kind)
    assert (kind.list_size, kind.value_type) == (4, pa.float32())
    assert table["embedding"].to_pylist() == values.tolist()
    half = write(storage, folder, some_ids("int64", 5), values, dtype="float16").digest
    kind = pq.read_schema(path_of(folder, half.name)).field("embedding").type
    assert kind.value_type == pa.float16()


def test_npy_as_other_tools_see_it(storage: Storage, folder: str) -> None:
    ids, values = some_ids("int64", 7), some_values(7)
    digest = write(storage, folder, ids, values, "npy", "float16").digest
    assert (digest.name, digest.ids_name) == ("part-00000.npy", "part-00000.ids.npy")
    array = np.load(path_of(folder, "part-00000.npy"))
    assert array.dtype == np.float16
    assert np.array_equal(array, values.astype(np.float16))
    assert np.array_equal(np.load(path_of(folder, "part-00000.ids.npy")), ids)
    texts = write(storage, folder, some_ids("string", 7), values, "npy").digest
    assert texts.ids_name == "part-00000.ids.parquet"
    table = pq.read_table(path_of(folder, texts.ids_name))
    assert table.to_pydict() == {"id": some_ids("string", 7).to_pylist()}


@pytest.mark.parametrize("format", FORMATS)
def test_slices_and_other_orders_of_memory(storage: Storage, folder: str, format: str) -> None:
    values = np.asfortranarray(some_values(20, 6))[::2, 1:5]
    ids = some_ids("int64", 20)[::2]
    digest = write(storage, folder, ids, values, format, step=7).digest
    found, back = read(storage, folder, digest)
    assert found == ids.tolist()
    assert np.array_equal(back, values)


@pytest.mark.parametrize("kind", ["int64", "string"])
@pytest.mark.parametrize("format", FORMATS)
def test_reading_needs_little_memory(storage: Storage, folder: str, format: str, kind: str) -> None:
    rows, width = 100_000, 256
    values = np.zeros((rows, width), np.float32)
    values[:, 0] = np.arange(rows)
    digest = write(storage, folder, some_ids(kind, rows), values, format, step=20_000).digest
    seen, before, most = 0, pa.total_allocated_bytes(), 0
    for ids, batch in read_part(storage, folder, digest, width):
        assert len(ids) == len(batch)
        assert batch.nbytes <= 8 << 20
        assert np.array_equal(batch[:, 0], np.arange(seen, seen + len(batch)))
        seen += len(batch)
        most = max(most, pa.total_allocated_bytes() - before)
    assert seen == rows
    assert most < values.nbytes / 2


def test_what_float16_cannot_hold_is_refused(storage: Storage, folder: str) -> None:
    values = some_values(5)
    values[3, 2] = -70000
    for ids, name in ((np.arange(5) * 11, "33"), (some_ids("string", 5), "'日本3'")):
        with pytest.raises(OutputError) as caught:
            write(storage, folder, ids, values, dtype="float16", step=2)
        assert str(caught.value) == (
            f"the embedding of node {name} has -70000 in column 2; the largest float16 is"
            " 65504, set output.dtype: float32"
        )
    assert files(folder) == []


# Damage


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["part-00000.npy", "part-00000.ids.npy"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip, "has the XXH3 checksum [0-9a-f]{32}, it was written with [0-9a-f]{32}"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), r"has \d+ bytes, \d+ were written"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), r"has \d+ bytes, \d+ were"),
        (lambda path: path.unlink(), "is missing although it was written"),
    ],
    ids=["flipped", "truncated", "longer", "missing"],
)
def test_verifying_finds_damage(
    storage: Storage, folder: str, name: str, damage: Callable[[Path], object], message: str
) -> None:
    writer = write(storage, folder, some_ids("int64", 50), some_values(50), "npy")
    damage(path_of(folder, name))
    with pytest.raises(OutputError, match=f"v/{name} {message}.*run the job again"):
        writer.verify()


@pytest.mark.parametrize("name", ["part-00000.npy", "part-00000.ids.npy", "part-00000.parquet"])
@pytest.mark.parametrize(
    "damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:60])]
)
def test_reading_a_damaged_part_names_it(
    storage: Storage, folder: str, name: str, damage: Callable[[Path], object]
) -> None:
    format = "parquet" if name.endswith(".parquet") else "npy"
    digest = write(storage, folder, some_ids("int64", 50), some_values(50), format).digest
    damage(path_of(folder, name))
    with pytest.raises(OutputError, match=f"v/{name} of a published version is missing or damaged"):
        read(storage, folder, digest)


def test_a_format_of_another_release_is_named(storage: Storage, folder: str) -> None:
    digest = write(storage, folder, some_ids("int64", 5), some_values(5)).digest
    with pytest.raises(OutputError, match=r"part-00000.orc has a format that this .* cannot read"):
        read(storage, folder, replace(digest, name="part-00000.orc"))


def test_npy_without_its_ids_is_refused(storage: Storage, folder: str) -> None:
    digest = write(storage, folder, some_ids("int64", 5), some_values(5), "npy").digest
    with pytest.raises(OutputError, match=r"names no ids for file://.*/part-00000.npy; go back"):
        read(storage, folder, replace(digest, ids_name=None))


# Failures while writing


def part_writer(storage: Storage, folder: str, format: Any, rows: int) -> PartWriter:
    return PartWriter(
        storage, f"{folder}/part-00000",
        format=format, dtype="float32", ids_kind="int64", width=4, rows=rows,
    )  # fmt: skip


class Broken:
    """A storage on which one operation fails from its n-th time on."""

    def __init__(self, storage: Storage, failing: str, nth: int) -> None:
        self._storage, self._failing, self._left = storage, failing, nth
        self.delete = storage.delete

    def _step(self, name: str) -> None:
        self._left -= name == self._failing
        if self._left <= 0:
            raise OutputError("the object cannot be written: No space left on device")

    @contextmanager
    def create(self, uri: str) -> Iterator[Any]:
        with self._storage.create(uri) as stream:
            self._step("create")
            yield _BrokenStream(stream, lambda: self._step("write"))
            self._step("complete")


class _BrokenStream:
    def __init__(self, stream: Any, step: Callable[[], None]) -> None:
        self._stream, self._step = stream, step

    def write(self, data: Any) -> int:
        self._step()
        return int(self._stream.write(data))


FULL = [(format, "create", 1) for format in FORMATS]
FULL += [(format, "complete", 1) for format in FORMATS]
FULL += [("npy", "create", 2), ("npy", "complete", 2)]
FULL += [(format, "write", n) for format in FORMATS for n in range(1, 12)]


@pytest.mark.parametrize(("format", "failing", "nth"), FULL)
def test_a_full_disk_leaves_nothing(
    storage: Storage, folder: str, format: str, failing: str, nth: int
) -> None:
    broken: Any = Broken(storage, failing, nth)
    with pytest.raises(OutputError, match="object cannot be written: No space left"):
        write(broken, folder, some_ids("string", 20), some_values(20), format)
    assert files(folder) == []


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OutputError("other"), ValueError("x")])
def test_an_exception_passes_and_leaves_nothing(
    storage: Storage, folder: str, format: Any, error: Any
) -> None:
    writer = part_writer(storage, folder, format, 20)

    def interrupted() -> None:
        with writer:
            writer.write(np.arange(10), some_values(10))
            raise error

    with pytest.raises(type(error)) as caught:
        interrupted()
    assert caught.value is error
    assert files(folder) == []


def test_a_writer_that_was_given_too_few_rows(storage: Storage, folder: str) -> None:
    with (
        pytest.raises(AssertionError, match="3 of 4 rows written"),
        part_writer(storage, folder, "npy", 4) as writer,
    ):
        writer.write(np.arange(3), some_values(3))
    assert files(folder) == []


def test_a_detached_sink_writes_nothing_more(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as stream:
        sink = HashedSink(stream)
        sink.write(b"ab")
        sink.detach()
        sink.write(b"cd")
    assert (tmp_path / "x").read_bytes() == b"ab"


def test_no_column_of_a_part_may_be_null() -> None:
    schema = schema_of("string", np.dtype(np.float32), 2)
    fields = [*schema, schema.field(VECTOR_COLUMN).type.value_field]
    assert [(field.name, field.nullable) for field in fields] == [
        (ID_COLUMN, False),
        (VECTOR_COLUMN, False),
        ("element", False),
    ]
