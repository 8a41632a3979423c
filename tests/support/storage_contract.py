"""What every store promises, as tests that run against each of them.

A test class derives from `StorageContract` and gives the fixtures ``storage`` and ``root`` (the
URI of an empty place, without a slash at its end).
"""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embertide.errors import InputError, ObjectMissing
from embertide.io.storage.protocol import ObjectInfo, Storage

MIB = 1 << 20
# Larger than all that is read ahead or uploaded at once, and no multiple of any part.
LARGE = random.Random(3).randbytes(37 * MIB + 4321)


def keys(storage: Storage, root: str, uri: str) -> list[str]:
    return [info.uri.removeprefix(f"{root}/") for info in storage.list(uri)]


class StorageContract:
    # ---- whole objects

    def test_what_is_written_is_read(self, storage: Storage, root: str) -> None:
        uri = f"{root}/a/deep/x.bin"
        assert storage.stat(uri) is None
        written = storage.write(uri, b"hello")
        assert written == storage.stat(uri) == ObjectInfo(uri, 5, written.etag)
        assert storage.read(uri) == b"hello"

    @pytest.mark.parametrize("size", [0, len(LARGE)])
    def test_empty_and_large_objects(self, storage: Storage, root: str, size: int) -> None:
        info = storage.write(f"{root}/x", LARGE[:size])
        assert info.size == size
        assert storage.stat(f"{root}/x") == info
        assert storage.read(f"{root}/x") == LARGE[:size]

    def test_what_is_written_soon_is_read_at_once_and_settled_later(
        self, storage: Storage, root: str
    ) -> None:
        uris = [f"{root}/a/{number}" for number in range(3)]
        for uri in uris:
            storage.write_soon(uri, memoryview(uri.encode()))
        storage.write_soon(uris[0], b"")
        assert [storage.read(uri) for uri in uris] == [b"", *(uri.encode() for uri in uris[1:])]
        storage.settle(uris)
        assert keys(storage, root, root) == ["a/0", "a/1", "a/2"]
        storage.settle([])

    def test_the_etag_changes_with_the_content(self, storage: Storage, root: str) -> None:
        first = storage.write(f"{root}/x", b"one")
        second = storage.write(f"{root}/x", b"two")
        assert first.etag
        assert first.etag != second.etag

    @pytest.mark.parametrize("name", ["sp ace", "per%20cent", "plus+", "ünï", "a=b&c", "q?#'"])
    def test_names_are_taken_as_they_are(self, storage: Storage, root: str, name: str) -> None:
        storage.write(f"{root}/{name}", b"1")
        assert keys(storage, root, root) == [name]
        assert storage.read(f"{root}/{name}") == b"1"

    def test_a_missing_object_is_named(self, storage: Storage, root: str) -> None:
        uri = f"{root}/not/there"
        looks: list[Callable[[str], object]] = [storage.read, storage.open]
        looks.append(lambda u: storage.read_range(u, 0, 4))
        looks.append(lambda u: storage.read_into(u, memoryview(bytearray(4))))
        for look in looks:
            with pytest.raises(ObjectMissing, match=uri):
                look(uri)

    # ---- listing

    def test_a_prefix_lists_all_below_it_in_order(self, storage: Storage, root: str) -> None:
        names = ["e/b", "e/a/2", "e/a/1", "e/c"]
        for name in [*names, "e2/z", "ea"]:
            storage.write(f"{root}/{name}", name.encode())
        for uri in (f"{root}/e", f"{root}/e/"):
            assert keys(storage, root, uri) == sorted(names)
        infos = storage.list(f"{root}/e")
        assert infos == [storage.stat(info.uri) for info in infos]

    def test_one_object_lists_itself(self, storage: Storage, root: str) -> None:
        info = storage.write(f"{root}/x", b"1")
        storage.write(f"{root}/xy", b"1")
        assert storage.list(f"{root}/x") == [info]

    def test_hidden_names_are_skipped_unless_asked_for(self, storage: Storage, root: str) -> None:
        names = ["a", "_SUCCESS", ".crc", "_temporary/0/a", "sub/.x", "sub/_y/z", "sub/b_"]
        for name in names:
            storage.write(f"{root}/d/{name}", b"1")
        assert keys(storage, root, f"{root}/d") == ["d/a", "d/sub/b_"]
        assert keys(storage, root, f"{root}/d/_temporary") == ["d/_temporary/0/a"]
        everything = storage.list(f"{root}/d", hidden=True)
        assert [info.uri for info in everything] == sorted(f"{root}/d/{name}" for name in names)

    def test_a_scan_names_what_it_leaves_out(self, storage: Storage, root: str) -> None:
        names = ["a", "_SUCCESS", ".crc", "_log/0/a", "sub/.x", "sub/_y/z", "sub/_y/w", "sub/b_"]
        for name in names:
            storage.write(f"{root}/d/{name}", b"1")
        for end in ("", "/"):
            listing = storage.scan(f"{root}/d{end}")
            assert listing.objects == storage.list(f"{root}/d")
            hidden = [".crc", "_SUCCESS", "_log/", "sub/.x", "sub/_y/"]
            assert listing.hidden == [f"{root}/d/{name}" for name in hidden]
        one = storage.scan(f"{root}/d/a")
        assert ([info.uri for info in one.objects], one.hidden) == ([f"{root}/d/a"], [])
        (hidden_only,) = storage.scan(f"{root}/d/_log").objects
        assert hidden_only.uri == f"{root}/d/_log/0/a"
        storage.write(f"{root}/h/_x", b"1")
        assert storage.scan(f"{root}/h").objects == []
        with pytest.raises(ObjectMissing, match=f"{root}/none"):
            storage.scan(f"{root}/none")

    def test_names_directly_below(self, storage: Storage, root: str) -> None:
        for name in ("v/b/1", "v/_log/1", "v/.x", "v/b1", "v/c/d/e"):
            storage.write(f"{root}/{name}", b"1")
        for end in ("", "/"):
            assert storage.names(f"{root}/v{end}") == [".x", "_log/", "b/", "b1", "c/"]
        assert storage.names(f"{root}/v", "b") == ["b/", "b1"]
        assert storage.names(f"{root}/none/") == storage.names(f"{root}/v/b1") == []

    def test_nothing_under_a_prefix_is_an_error(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/d/_hidden", b"1")
        for uri in (f"{root}/none", f"{root}/none/", f"{root}/d"):
            with pytest.raises(ObjectMissing, match=uri):
                storage.list(uri)

    def test_a_prefix_is_no_object(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/d/x", b"1")
        assert storage.stat(f"{root}/d") is None

    def test_folders_directly_below(self, storage: Storage, root: str) -> None:
        for name in ("v/b/1", "v/a/1", "v/a/2/3", "v/file"):
            storage.write(f"{root}/{name}", b"1")
        assert storage.list_folders(f"{root}/v/") == ["a", "b"]
        assert storage.list_folders(f"{root}/none/") == []

    # ---- ranges and files

    def test_ranges(self, storage: Storage, root: str) -> None:
        uri = f"{root}/x"
        storage.write(uri, b"0123456789")
        ranges = [(0, 4), (3, 2), (8, 9), (10, 5), (99, 1), (4, 0)]
        got = [storage.read_range(uri, start, length) for start, length in ranges]
        assert got == [b"0123456789"[start : start + length] for start, length in ranges]
        storage.write(uri, b"")
        assert storage.read_range(uri, 0, 5) == b""

    @pytest.mark.parametrize("size", [0, 7, len(LARGE)])
    def test_a_buffer_is_filled(self, storage: Storage, root: str, size: int) -> None:
        uri, data = f"{root}/x", LARGE[:size]
        storage.write(uri, data)
        for room in {0, size // 2, size, size + 3}:
            buffer = bytearray(b"-" * room)
            assert storage.read_into(uri, memoryview(buffer)) == size
            assert buffer == data[:room] + b"-" * (room - size)
        if size:
            for spans in ([(0, size)], [(size - 1, size)], [(0, 2), (3, 4), (size - 2, size)]):
                buffer = bytearray(sum(stop - start for start, stop in spans))
                assert storage.read_into(uri, memoryview(buffer), spans) == size
                assert buffer == b"".join(data[slice(*span)] for span in spans)
        beyond = [(0, size), (size + 9, size + 14)]
        assert storage.read_into(uri, memoryview(bytearray(size + 5)), beyond) != size + 14

    def test_a_file_reads_like_one_in_memory(self, storage: Storage, root: str) -> None:
        info = storage.write(f"{root}/x", LARGE)
        choose, model = random.Random(5), io.BytesIO(LARGE)
        with storage.open(info.uri, info) as file:
            for _ in range(60):
                if choose.random() < 0.5:
                    to = choose.choice([0, choose.randrange(len(LARGE)), len(LARGE) - 5])
                    assert file.seek(to) == model.seek(to)
                size = choose.choice([0, 1, 4096, 5 * MIB, 17 * MIB])
                assert file.read(size) == model.read(size)
                assert file.tell() == model.tell()
            assert file.seek(-9, io.SEEK_END) == len(LARGE) - 9
            assert file.read() == LARGE[-9:]
            assert file.read(10) == b""
        assert file.closed

    def test_parquet_through_a_file(self, storage: Storage, root: str) -> None:
        table = pa.table({"src": np.arange(500_000), "dst": np.arange(500_000) * 3})
        with storage.create(f"{root}/e.parquet") as stream:
            pq.write_table(table, pa.PythonFile(stream, mode="w"), row_group_size=100_000)
        with storage.open(f"{root}/e.parquet") as raw:
            file = pq.ParquetFile(pa.PythonFile(raw, mode="r"))
            assert file.read_row_group(3, columns=["dst"]) == table.slice(300_000, 100_000).select(
                ["dst"]
            )

    def test_an_object_that_changed_since_it_was_listed(self, storage: Storage, root: str) -> None:
        info = storage.write(f"{root}/x", b"old content")
        storage.write(f"{root}/x", b"new content")

        def read() -> None:
            with storage.open(info.uri, info) as file:
                file.read()

        with pytest.raises(InputError, match=f"{info.uri} changed .*run the job again"):
            read()

    # ---- streams

    def test_a_stream_is_seen_when_it_ends(self, storage: Storage, root: str) -> None:
        uri = f"{root}/out/x"
        with storage.create(uri) as stream:
            for start in range(0, len(LARGE), 999_999):
                stream.write(LARGE[start : start + 999_999])
                assert stream.tell() == min(start + 999_999, len(LARGE))
            assert storage.stat(uri) is None
        assert storage.read(uri) == LARGE

    def test_an_empty_stream_is_an_empty_object(self, storage: Storage, root: str) -> None:
        with storage.create(f"{root}/x"):
            pass
        assert storage.read(f"{root}/x") == b""

    @pytest.mark.parametrize("size", [3, len(LARGE)])
    def test_a_failed_stream_leaves_the_old_object(
        self, storage: Storage, root: str, size: int
    ) -> None:
        def write(uri: str) -> None:
            with storage.create(uri) as stream:
                stream.write(LARGE[:size])
                raise KeyboardInterrupt

        old = storage.write(f"{root}/x", b"old")
        for name in ("x", "never"):
            with pytest.raises(KeyboardInterrupt):
                write(f"{root}/{name}")
        assert storage.list(root) == [old]
        assert storage.read(old.uri) == b"old"

    # ---- conditions

    def test_conditional_writes(self, storage: Storage, root: str) -> None:
        uri = f"{root}/LATEST"
        assert not storage.write_if(uri, b"never", "some-etag")
        assert storage.stat(uri) is None
        assert storage.write_if(uri, b"1", None)
        assert not storage.write_if(uri, b"never", None)
        first = storage.stat(uri)
        assert first is not None
        assert storage.write_if(uri, b"2", first.etag)
        assert not storage.write_if(uri, b"never", first.etag)
        assert storage.read(uri) == b"2"

    @pytest.mark.parametrize("new", [True, False])
    def test_of_many_writers_one_wins(self, storage: Storage, root: str, new: bool) -> None:
        uri = f"{root}/LATEST"
        expected = None if new else storage.write(uri, b"before").etag
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda i: storage.write_if(uri, b"%d" % i, expected), range(8)))
        assert won.count(True) == 1
        assert storage.read(uri) == b"%d" % won.index(True)

    # ---- the rest

    def test_deleting(self, storage: Storage, root: str) -> None:
        for name in "abc":
            storage.write(f"{root}/{name}", b"1")
        storage.delete(f"{root}/{name}" for name in ("a", "missing", "c"))
        assert keys(storage, root, root) == ["b"]
        storage.delete([])
        storage.delete([f"{root}/b"])
        with pytest.raises(ObjectMissing):
            storage.list(root)

    def test_a_pickled_storage_works(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/x", b"1")
        copy: Any = pickle.loads(pickle.dumps(storage))  # noqa: S301
        assert copy.read(f"{root}/x") == b"1"
