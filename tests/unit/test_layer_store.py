"""Kept layers are read as they were written, or not at all; they go when no attempt needs them."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from embertide.errors import OutputError
from embertide.io.storage.local import LocalStore
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Span
from embertide.io.versions.layers import attempts, reading, seals, writing
from embertide.io.versions.layers.attempts import Attempt
from embertide.io.versions.layers.catalog import list_layers, remove_layers
from embertide.io.versions.layers.places import attempt_uri, key_uri, layers_uri, seal_uri
from embertide.io.versions.layers.reading import Kept
from embertide.io.versions.layers.seals import Damaged, KeptTensor, Seal
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.sweeping import (
    ABANDONED_AFTER,
    give_back,
    has_seals,
    keys,
    objects_of,
    sweep,
)
from embertide.io.versions.layers.writing import Writer
from tests.support.kept import spans_of, tensor_like, write_record
from tests.support.patience import WAIT_SECONDS

KEY, OTHER = "a" * 32, "b" * 32
NAME = "c" * 32
VERSION = "20261126T180000Z-3fa9c1"
VALUES = np.random.default_rng(2).standard_normal((50, 6)).astype(np.float32)
WORKERS = ((0, 20, 0, 6), (20, 50, 0, 4), (20, 50, 4, 6))
"""First and last row and column of what each worker has written."""
PAGE = 40
"""Bytes of a page; a row of six values has 24."""


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BLOCK_BYTES", 7 * 24)
    monkeypatch.setattr(seals, "PAGE_BYTES", PAGE)
    monkeypatch.setattr(reading, "LOCAL_GAP_BYTES", 0)


@pytest.fixture
def output(tmp_path: Path) -> str:
    return (tmp_path / "out").as_uri()


def open_layers(output: str, key: str = KEY) -> LayerStore:
    return LayerStore(open_storage(None), output, key, VERSION)


def write(store: LayerStore) -> KeptTensor:
    """The tensor as workers of a grid have it, in blocks of a few rows."""
    (tensor,) = write_record(store, NAME, tensor_like(VALUES), VALUES, WORKERS).seal.tensors
    assert len(tensor.blocks) == 8
    return tensor


def keep(output: str, key: str = KEY) -> LayerStore:
    store = open_layers(output, key)
    seal = Seal(
        key=key, name=NAME, version=VERSION, layer=1, layers=3, feature=1, tensors=(write(store),)
    )
    assert store.seal(seal)
    return store


def read(
    store: LayerStore, rows: tuple[int, int] = (0, 50), columns: tuple[int, int] = (0, 6)
) -> np.ndarray:
    seal = store.sealed(NAME)
    assert seal is not None
    out = np.full((rows[1] - rows[0], columns[1] - columns[0]), np.nan, np.float32)
    Kept(store, seal).get("h", rows, out, columns[0])
    return out


def kept_of(store: LayerStore) -> Kept:
    seal = store.sealed(NAME)
    assert seal is not None
    return Kept(store, seal)


def test_some_rows_are_read_from_their_blocks_alone(output: str) -> None:
    kept = kept_of(keep(output))
    assert (kept.has("h"), kept.has("other")) == (50, None)
    rows = np.array([48, 3, 3, 22, 0, 49])
    for left, right in ((0, 6), (3, 5), (5, 6)):
        out = np.empty((len(rows), right - left), np.float32)
        kept.get("h", rows, out, left)
        assert np.array_equal(out, VALUES[rows, left:right])
    out = np.empty((len(rows), 6), np.float32)
    blocks = kept.tensor("h").blocks
    untouched = next(block for block in blocks if (block.first, block.last) == (7, 14))
    Path(f"{kept.store.uri}/{untouched.path}".removeprefix("file://")).unlink()
    kept.get("h", rows, out)
    with pytest.raises(Damaged, match="does not exist"):
        kept.get("h", np.array([9]), out[:1])
    for wrong in (50, -1):
        with pytest.raises(Damaged, match="h has 50 rows"):
            kept.get("h", np.array([0, wrong]), out[:2])
    with pytest.raises(Damaged, match="is of float32"):
        kept.get("h", np.array([0]), np.empty((1, 6)))
    with pytest.raises(Damaged, match="other was not kept"):
        kept.get("other", np.array([0]), out[:1])


def test_a_changed_byte_of_any_page_is_noticed(output: str) -> None:
    """Where all is read, and where a row of this page is; rows of other pages are as written."""
    kept = kept_of(keep(output))
    for block in kept.tensor("h").blocks:
        path = Path(f"{kept.store.uri}/{block.path}".removeprefix("file://"))
        data, width = path.read_bytes(), 4 * (block.right - block.left)
        for at in range(len(data)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            page = range(at // PAGE * PAGE, min(len(data), (at // PAGE + 1) * PAGE))
            with pytest.raises(Damaged, match=f"{block.path} does not match its checksum"):
                read(kept.store)
            for row in range(block.last - block.first):
                where = np.array([block.first + row])
                out = np.empty((1, block.right - block.left), np.float32)
                if row * width < page.stop and (row + 1) * width > page.start:
                    with pytest.raises(Damaged, match="does not match its checksum"):
                        kept.get("h", where, out, block.left)
                else:
                    kept.get("h", where, out, block.left)
                    assert np.array_equal(out, VALUES[where, block.left : block.right])
        path.write_bytes(data)


@pytest.mark.parametrize("gap", [0, 1, PAGE, 3 * PAGE, 1000])
def test_pages_that_are_read_are_those_of_the_rows_and_of_gaps(
    gap: int, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LOCAL_GAP_BYTES", gap)
    kept, got = kept_of(keep(output)), list[tuple[str, int, int]]()
    read_into = LocalStore.read_into

    def note(store: LocalStore, uri: str, buffer: memoryview, spans: Sequence[Span] = ()) -> int:
        got.extend((uri.rpartition("/blocks/")[2], *span) for span in spans)
        return read_into(store, uri, buffer, spans)

    monkeypatch.setattr(LocalStore, "read_into", note)
    g = np.random.default_rng(3)
    for count in (1, 2, 5, 20):
        rows = g.choice(50, count, replace=False)
        got.clear()
        out = np.empty((count, 6), np.float32)
        kept.get("h", rows, out)
        assert np.array_equal(out, VALUES[rows])
        expected = [
            (block.path.removeprefix("blocks/"), *span)
            for block in kept.tensor("h").blocks
            for span in spans_of(block, rows, PAGE, gap)
        ]
        assert sorted(got) == sorted(expected)


def test_any_range_of_rows_and_columns_is_read(output: str) -> None:
    store = keep(output)
    for rows in ((0, 50), (3, 4), (18, 33), (49, 50), (7, 7)):
        for columns in ((0, 6), (3, 5), (5, 6)):
            assert np.array_equal(read(store, rows, columns), VALUES[slice(*rows), slice(*columns)])


def test_rows_beside_a_tensor_come_in_order_of_their_ids(output: str) -> None:
    store, ids = open_layers(output), np.array([3, 8, 20, 41])
    beside = [("exact", some, VALUES[some]) for some in (ids[2:], ids[:2])]
    like = tensor_like(VALUES)
    halves = [(0, 25, 0, 6), (25, 50, 0, 6)]
    record = write_record(store, NAME, like, VALUES, halves, beside=beside)  # type: ignore[arg-type]
    found, values = Kept(store, record.seal).beside("h", "exact", (3, 41), (0, 6), np.float32)
    assert found.tolist() == [3, 8, 20]
    assert np.array_equal(values, VALUES[found])
    with pytest.raises(Damaged, match="has other columns"):
        Kept(store, record.seal).beside("h", "exact", (3, 41), (0, 5), np.float32)


def test_nothing_is_complete_without_a_seal(output: str) -> None:
    store = open_layers(output)
    assert not store.is_there()
    write(store)
    assert store.is_there()
    assert store.sealed(NAME) is None
    assert store.sealed("d" * 32) is None


@pytest.mark.parametrize("on_one_machine", [False, True])
def test_blocks_are_on_the_disk_before_the_seal_is(
    on_one_machine: bool, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each at once, or on one machine all of them when the layer is sealed."""
    synced, os_fsync = list[Path](), os.fsync

    def fsync(number: int) -> None:
        os_fsync(number)
        synced.append(Path(f"/proc/self/fd/{number}").readlink())

    monkeypatch.setattr(os, "fsync", fsync)
    store = replace(open_layers(output), on_one_machine=on_one_machine)
    tensor = write(store)
    before = len(synced)
    seal = Seal(
        key=KEY, name=NAME, version=VERSION, layer=1, layers=3, feature=1, tensors=(tensor,)
    )
    assert store.seal(seal)
    names = {block.path.rpartition("/")[2] for block in tensor.blocks}
    blocks = [path for path in synced if path.name in names]
    folder = Path(key_uri(output, KEY).removeprefix("file://"), "blocks", VERSION)
    assert folder in synced
    if on_one_machine:
        assert (before, {path.name for path in blocks}) == (0, names)
        assert synced.index(folder) == len(names)
    else:
        assert blocks == []
        assert before == 2 * len(names), "of each block its hidden file, and then its folder"
    assert np.array_equal(read(store), VALUES)


def test_a_layer_whose_block_is_gone_gets_no_seal(output: str) -> None:
    store = replace(open_layers(output), on_one_machine=True)
    tensor = write(store)
    store.remove(tensor.blocks[3:4])
    seal = Seal(
        key=KEY, name=NAME, version=VERSION, layer=1, layers=3, feature=1, tensors=(tensor,)
    )
    with pytest.raises(OutputError, match="cannot be written: No such file or directory"):
        store.seal(seal)
    assert store.sealed(NAME) is None


def test_of_two_attempts_one_seals(output: str) -> None:
    store = keep(output)
    seal = store.sealed(NAME)
    assert seal is not None
    assert not store.seal(replace(seal, version="20261126T190000Z-3fa9c1"))
    assert store.sealed(NAME) == seal


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _other(path: Path) -> None:
    """Another block's contents, of the same size."""
    others = [p for p in path.parent.iterdir() if p != path]
    same = [p for p in others if p.stat().st_size == path.stat().st_size]
    path.write_bytes(same[0].read_bytes())


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_flip, "does not match its checksum"),
        (_other, "does not match its checksum"),
        (_cut, "bytes, 168 were written"),
        (Path.unlink, "does not exist"),
    ],
)
def test_a_spoilt_block_is_noticed_and_named(
    spoil: Callable[[Path], None], why: str, output: str
) -> None:
    store = keep(output)
    block = Path(key_uri(output, KEY).removeprefix("file://"), "blocks", VERSION)
    path = sorted(block.iterdir())[1]
    spoil(path)
    with pytest.raises(Damaged, match=why) as error:
        read(store)
    assert path.name in str(error.value)
    # Rows of other blocks are still what they were.
    assert np.array_equal(read(store, (0, 7)), VALUES[:7])


@pytest.mark.parametrize(
    ("spoil", "why"), [(_flip, "seal.json"), (_cut, "is no record of a layer")]
)
def test_a_spoilt_seal_is_noticed(spoil: Callable[[Path], None], why: str, output: str) -> None:
    store = keep(output)
    spoil(Path(seal_uri(output, KEY, NAME).removeprefix("file://")))
    with pytest.raises(Damaged, match=why):
        store.sealed(NAME)
    (kept,) = list_layers(store.storage, output)
    assert (kept.layers, len(kept.problems)) == ([], 1)
    store.drop(NAME)
    assert store.sealed(NAME) is None


def test_the_seal_of_another_layer_is_not_believed(output: str) -> None:
    store = keep(output)
    data = store.storage.read(seal_uri(output, KEY, NAME))
    for key, name in ((OTHER, NAME), (KEY, "d" * 32)):
        store.storage.write(seal_uri(output, key, name), data)
        with pytest.raises(Damaged, match=f"is the record of another layer, {KEY}/{NAME}"):
            open_layers(output, key).sealed(name)


def test_blocks_that_do_not_cover_a_range_are_refused(output: str) -> None:
    store = keep(output)
    seal = store.sealed(NAME)
    assert seal is not None
    (tensor,) = seal.tensors
    lacking = replace(tensor, blocks=tensor.blocks[:2] + tensor.blocks[3:])
    with pytest.raises(Damaged, match="have 264 of the 300 values of rows 0 to 50"):
        Kept(store, replace(seal, tensors=(lacking,))).get("h", (0, 50), np.empty((50, 6), "f4"))


def test_layers_go_when_their_version_is_published(output: str) -> None:
    store = keep(output)
    keep(output, OTHER)
    sweep(store.storage, output, {KEY})
    assert keys(store.storage, output) == [OTHER]
    sweep(store.storage, output, {OTHER})
    assert not Path(layers_uri(output).removeprefix("file://")).exists()


def test_layers_that_the_next_run_goes_on_from_stay_however_old(
    output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = keep(output)
    keep(output, OTHER)
    later = time.time() + ABANDONED_AFTER.total_seconds() + 1
    monkeypatch.setattr("embertide.io.versions.layers.sweeping._store_time", lambda *_: later)
    sweep(store.storage, output, {KEY}, {KEY})
    assert keys(store.storage, output) == [KEY]


def test_what_killed_writers_and_sweeps_leave_goes_too(output: str, tmp_path: Path) -> None:
    """A directory without the file that it was made for, and the time of the store."""
    store = keep(output)
    layers = tmp_path / "out" / "_layers"
    (layers / KEY / "blocks" / "20261126T190000Z-3fa9c1").mkdir()
    (layers / "_time-0123abcd").write_bytes(b"now")
    sweep(store.storage, output, {KEY})
    assert not layers.exists()


def test_layers_stay_while_an_attempt_may_read_them(output: str) -> None:
    store = keep(output)
    with Attempt(store.storage, output, KEY, VERSION) as attempt:
        attempt.begin()
        sweep(store.storage, output, {KEY})
        (kept,) = list_layers(store.storage, output)
        assert (kept.layers, kept.of, kept.in_use) == ([1], 3, True)
        assert remove_layers(store.storage, output, [kept]) == []
        assert np.array_equal(read(store), VALUES)
    (kept,) = list_layers(store.storage, output)
    assert not kept.in_use
    assert kept.size >= VALUES.nbytes
    assert remove_layers(store.storage, output, [kept]) == [kept]
    assert list_layers(store.storage, output) == []


def test_an_attempt_whose_process_is_gone_holds_nothing(output: str) -> None:
    store = keep(output)
    child = os.fork()
    if child == 0:
        Attempt(store.storage, output, KEY, VERSION).begin()
        os._exit(0)
    # It has ended, but its parent has not noticed yet.
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert store.storage.stat(attempt_uri(output, KEY, VERSION)) is not None
    sweep(store.storage, output, {KEY})
    os.waitpid(child, 0)
    assert keys(store.storage, output) == []


@pytest.mark.parametrize(("alive", "left"), [(WAIT_SECONDS, [KEY]), (0.2, [])])
def test_an_attempt_of_another_machine_holds_as_long_as_it_beats(
    alive: float, left: list[str], output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = keep(output)
    attempt = Attempt(store.storage, output, KEY, VERSION)
    monkeypatch.setattr(attempts.socket, "gethostname", lambda: "another")
    attempt.begin()
    monkeypatch.undo()
    monkeypatch.setattr(writing, "BLOCK_BYTES", 7 * 24)
    monkeypatch.setattr(seals, "PAGE_BYTES", PAGE)
    monkeypatch.setattr(attempts, "ALIVE_SECONDS", alive)
    time.sleep(0.3)
    sweep(store.storage, output, {KEY})
    assert keys(store.storage, output) == left


def test_an_attempt_says_so_again_and_again(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "BEAT_SECONDS", 0.05)
    storage, uri = open_storage(None), attempt_uri(output, KEY, VERSION)
    with Attempt(storage, output, KEY, VERSION) as attempt:
        assert storage.stat(uri) is None
        attempt.begin()
        attempt.begin()
        first = storage.stat(uri)
        assert first is not None
        deadline = time.monotonic() + 20
        while storage.stat(uri).etag == first.etag:  # type: ignore[union-attr]
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert storage.stat(uri) is None


def test_abandoned_layers_go_by_age(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time of the newest object, since what is under way is written to."""
    storage = keep(output).storage
    # A file's own times cannot be set back: a rename or a write changes one of them.
    monkeypatch.setattr(
        "embertide.io.versions.layers.sweeping._store_time", lambda *_: time.time() + 3600
    )
    sweep(storage, output, {OTHER})
    assert keys(storage, output) == [KEY]
    later = time.time() + ABANDONED_AFTER.total_seconds() + 1
    monkeypatch.setattr("embertide.io.versions.layers.sweeping._store_time", lambda *_: later)
    sweep(storage, output, {OTHER})
    assert not [info for key in keys(storage, output) for info in objects_of(storage, output, key)]


def test_what_a_killed_writer_left_goes_too(output: str) -> None:
    store = keep(output)
    folder = Path(key_uri(output, KEY).removeprefix("file://"), "blocks", VERSION)
    (folder / ".0123456789ab.part").write_bytes(b"half")
    sweep(store.storage, output, {KEY})
    assert not Path(layers_uri(output).removeprefix("file://")).exists()


def test_a_process_that_has_the_number_of_another_one_is_told_apart() -> None:
    own = psutil.Process()
    assert attempts._began(own.pid) == own.create_time()
    assert attempts._began(2**22 + 1) is None


def test_layers_make_room_but_those_that_another_attempt_may_use(output: str) -> None:
    storage = open_storage(None)
    every = [KEY, OTHER, "d" * 32, "e" * 32]
    for key in every:
        keep(output, key)
    own = [Attempt(storage, output, KEY, f"{VERSION}{more}") for more in ("", "-keeps")]
    other = Attempt(storage, output, OTHER, "20261126T180001Z-000000")
    for attempt in (*own, other):
        attempt.begin()
    assert give_back(storage, output, VERSION, every) is False
    assert give_back(storage, output, VERSION, [every[3]]) is True
    left = [key for key in every if has_seals(storage, output, key)]
    assert left == [OTHER, every[3]]
    for attempt in (*own, other):
        attempt.__exit__(None, None, None)
    # What a killed attempt left holds nothing.
    killed = {"host": socket.gethostname(), "pid": os.getpid(), "began": 0}
    storage.write(
        attempt_uri(output, OTHER, "20261126T170000Z-000000-keeps"), json.dumps(killed).encode()
    )
    assert give_back(storage, output, VERSION) is True
    assert give_back(storage, output, VERSION) is False
    assert not [info for key in keys(storage, output) for info in objects_of(storage, output, key)]


def test_what_killed_attempts_left_beside_layers_that_stay_goes(output: str) -> None:
    store = keep(output)
    killed = replace(store, version="20261126T170000Z-000000")
    write(killed)
    uri = attempt_uri(output, KEY, "20261126T170000Z-000000-keeps")
    store.storage.write(uri, b'{"host": "gone"}')
    before = len(store.storage.list(store.uri, hidden=True))
    path = Path(uri.removeprefix("file://"))
    os.utime(path, (0, 0))
    sweep(store.storage, output, [], [KEY])
    # A mark that was written a moment ago may be that of an attempt on another machine.
    assert len(store.storage.list(store.uri, hidden=True)) == before
    path.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "began": 0}))
    sweep(store.storage, output, [], [KEY])
    left = [info.uri for info in store.storage.list(store.uri, hidden=True)]
    assert len(left) == 9
    assert not [uri for uri in left if "20261126T170000Z" in uri]
    assert np.array_equal(read(store), VALUES)


def test_what_a_rank_could_not_write_is_the_first_error_of_all(
    output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written for it goes, and nothing is sealed."""
    store, write = open_layers(output), LocalStore.write

    def fail(error: Exception) -> None:
        def failing(own: LocalStore, uri: str, data: bytes) -> object:
            if uri.endswith("-000001"):
                raise error
            return write(own, uri, data)

        monkeypatch.setattr(LocalStore, "write", failing)

    fail(OutputError("the disk is full"))
    with Writer(store, 0, lambda own: [own]) as writer:
        record = writer.begin(NAME)
        record.put(tensor_like(VALUES), VALUES)
        assert record.result()[0] == "the disk is full"
        assert len(record.result()[1][0]) == 7
        assert record.keep() == "the disk is full"
        assert not list(Path(output.removeprefix("file://")).rglob("*-0*"))
        given_up = writer.begin(NAME)
        given_up.why = "given up"
        given_up.put(tensor_like(VALUES), VALUES)
        assert given_up.keep() == "given up"
        fail(ZeroDivisionError())
        other = writer.begin(NAME)
        other.put(tensor_like(VALUES), VALUES)
        with pytest.raises(ZeroDivisionError):
            other.agree()
    assert store.sealed(NAME) is None
