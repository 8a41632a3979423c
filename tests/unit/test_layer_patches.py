"""Rows that were computed again are kept beside those of an earlier run, night after night."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.errors import StorageError
from embertide.io.storage.local import LocalStore
from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers import seals, writing
from embertide.io.versions.layers.attempts import Attempt
from embertide.io.versions.layers.catalog import list_layers, remove_layers
from embertide.io.versions.layers.places import layers_uri
from embertide.io.versions.layers.reading import Kept, overlaps
from embertide.io.versions.layers.seals import Block, Damaged, KeptTensor
from embertide.io.versions.layers.store import LayerStore
from embertide.io.versions.layers.sweeping import ABANDONED_AFTER, keys, sweep
from embertide.io.versions.layers.writing import EarlierRows, Writer, plan_patch, rows_of
from tests.support.kept import tensor_like, write_record

NAME = "c" * 32
ROWS, WIDTH, NIGHTS = 200, 6, 20
PAGE_BYTES = seals.PAGE_BYTES
WORKERS = ((0, 80, 0, 6), (80, 200, 0, 4), (80, 200, 4, 6))
"""First and last row and column of each worker."""


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BLOCK_BYTES", 30 * 24)
    monkeypatch.setattr(seals, "PAGE_BYTES", 100)


@dataclass
class Nights:
    """A tensor that is kept night after night, as a run keeps it."""

    output: str
    values: np.ndarray = field(
        default_factory=lambda: np.random.default_rng(1).random((ROWS, WIDTH), np.float32)
    )
    number: int = 0
    tensor: KeptTensor | None = None
    written: int = 0

    @property
    def storage(self) -> LocalStore:
        return open_storage(None)  # type: ignore[return-value]

    @property
    def store(self) -> LayerStore:
        key = f"{self.number:032x}"
        version = f"20261126T1800{self.number:02}Z-3fa9c1"
        return LayerStore(self.storage, self.output, key, version, on_one_machine=True)

    def keep(self, moved: np.ndarray | None = None) -> KeptTensor:
        """Keep the tensor; None: as a run of all rows does."""
        earlier = None
        if moved is not None and self.tensor is not None:
            earlier = EarlierRows(self.store.key, self.tensor, moved)
        self.number += 1
        store, tensor = self.store, tensor_like(self.values, layout="tile")
        record = write_record(store, NAME, tensor, self.values, WORKERS, earlier, layer=1, layers=3)
        (self.tensor,), self.written = record.seal.tensors, record.written
        assert store.seal(record.seal)
        return self.tensor

    def move(self, rows: np.ndarray) -> np.ndarray:
        """Other values of some rows."""
        moved = np.zeros(ROWS, bool)
        moved[rows] = True
        self.values[moved] += 1.0
        return moved

    def read(self, rows: tuple[int, int], columns: tuple[int, int]) -> np.ndarray:
        seal = self.store.sealed(NAME)
        assert seal is not None
        out = np.full((rows[1] - rows[0], columns[1] - columns[0]), np.nan, np.float32)
        kept = Kept(self.store, seal)
        kept.get("h", rows, out, columns[0])
        some = np.full_like(out, np.nan)
        kept.get("h", np.arange(*rows)[::-1], some, columns[0])
        assert np.array_equal(out, some[::-1])
        return out

    def is_whole(self) -> bool:
        """Whether what is read has the bits of what was kept, in all and in some ranges."""
        ranges = ((0, ROWS), (70, 90), (81, 82), (199, 200), (50, 50))
        return all(
            np.array_equal(self.read(rows, columns), self.values[slice(*rows), slice(*columns)])
            for rows in ranges
            for columns in ((0, 6), (3, 5), (5, 6))
        )

    def files(self) -> dict[str, int]:
        """Path -> bytes of all blocks that are there."""
        folder = Path(layers_uri(self.output).removeprefix("file://"))
        files = folder.glob("*/blocks/*/*")
        return {str(path.relative_to(folder)): path.stat().st_size for path in files}

    def referred(self) -> dict[str, int]:
        """Path -> bytes of the blocks that the last night's seal has."""
        seal = self.store.sealed(NAME)
        assert seal is not None
        return {f"{key}/{block.path}": size for key, block, size in seal.stored()}


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    nights = Nights((tmp_path / "out").as_uri())
    nights.keep()
    return nights


def expected_patches(sets: list[set[int]], moved: set[int]) -> list[set[int]] | None:
    """The rows of each patch after a night; None: all rows are written."""
    sets, most, rows = list(sets), len(moved), set(moved)
    while moved and sets and len(sets[-1]) <= most:
        most += len(sets[-1])
        rows |= sets.pop()
    if most + sum(map(len, sets)) > ROWS // 4:
        return None
    return [*sets, rows] if rows else sets


@pytest.mark.tier(2)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_twenty_nights_write_the_rows_that_have_moved(seed: int, nights: Nights) -> None:
    g, sets, whole = np.random.default_rng(seed), list[set[int]](), 0
    for _ in range(NIGHTS):
        moved = nights.move(g.choice(ROWS, g.choice([0, 1, 2, 7, 20]), replace=False))
        rows = set(np.flatnonzero(moved).tolist())
        before = nights.store.key
        nights.keep(moved)
        after = expected_patches(sets, rows)
        whole += after is None
        last = after[-1] if after and rows else set[int]()
        # Columns of rows from 80 on are in two objects, each with the rows' places.
        places = sum(1 if row < 80 else 2 for row in last)
        expected = ROWS * WIDTH * 4 if after is None else len(last) * WIDTH * 4 + 8 * places
        assert nights.written == expected
        sets = after or []
        tensor = nights.tensor
        assert tensor is not None
        assert [rows_of(patch, WIDTH) for patch in tensor.patches] == list(map(len, sets))
        assert nights.is_whole()
        sweep(nights.storage, nights.output, {before}, {nights.store.key})
        assert nights.files() == nights.referred()
        assert nights.is_whole()
    assert 0 < whole < NIGHTS / 2


def test_a_night_without_moves_writes_nothing_but_its_seal(nights: Nights) -> None:
    nights.keep(nights.move(np.array([3, 150])))
    before = nights.referred()
    nights.keep(np.zeros(ROWS, bool))
    assert nights.written == 0
    assert nights.referred() == before
    assert nights.is_whole()


def test_a_quarter_of_the_rows_is_the_most_in_patches(nights: Nights) -> None:
    tensor = nights.keep(nights.move(np.arange(50)))
    assert len(tensor.patches) == 1
    tensor = nights.keep(nights.move(np.array([199])))
    assert not tensor.patches
    assert all(not block.key for block in tensor.blocks)


@pytest.mark.parametrize("what", [{"rows": ROWS + 1}, {"width": 5}, {"dtype": "bfloat16"}])
def test_tensors_of_another_shape_are_written_whole(
    what: dict[str, object], nights: Nights
) -> None:
    tensor = nights.tensor
    assert tensor is not None
    other = replace(tensor, blocks=(), **what)  # type: ignore[arg-type]
    earlier = EarlierRows(nights.store.key, tensor, np.zeros(ROWS, bool))
    assert plan_patch(other, earlier) is None
    assert plan_patch(replace(tensor, blocks=()), earlier) is not None


def test_rows_of_a_patch_take_memory_as_they_are_written(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BLOCK_BYTES", 1 << 16)
    values, moved = np.zeros((200_000, 16), np.float32), np.zeros(200_000, bool)
    moved[::5] = True
    tensor = tensor_like(values)
    assert moved.sum() * values[0].nbytes == 2_560_000
    with Writer(nights.store, 0, lambda own: [own]) as writer:
        record = writer.begin(NAME)
        tracemalloc.start()
        record.put(tensor, values, earlier=EarlierRows("0" * 32, tensor, moved))
        record.wait()
        # The rows' places, and the blocks under way.
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
        tracemalloc.stop()
        assert not record.agree()
    assert record.written == 2_560_000 + 8 * moved.sum()


def _blocks(nights: Nights) -> Iterator[tuple[str, Path]]:
    """Each block of the first night and of the patch, and its file."""
    assert nights.tensor is not None
    first, patch = nights.tensor.blocks[0], nights.tensor.patches[0][0]
    for block in (first, patch):
        folder = layers_uri(nights.output).removeprefix("file://")
        path = Path(folder, block.key or nights.store.key, block.path)
        yield block.path, path


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("spoil", ["changed", "cut", "gone"])
def test_a_spoilt_base_or_patch_is_noticed(which: int, spoil: str, nights: Nights) -> None:
    nights.keep(nights.move(np.array([3, 17])))
    name, path = list(_blocks(nights))[which]
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    if spoil == "gone":
        path.unlink()
    else:
        path.write_bytes(data if spoil == "changed" else data[:-1])
    with pytest.raises(Damaged) as error:
        nights.read((0, ROWS), (0, WIDTH))
    assert name in str(error.value)


def test_a_spoilt_patch_is_not_merged(nights: Nights) -> None:
    nights.keep(nights.move(np.array([3, 17])))
    path = dict(_blocks(nights))[nights.tensor.patches[0][0].path]  # type: ignore[union-attr]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Damaged, match=path.name):
        nights.keep(nights.move(np.array([4, 18])))


class Gone(np.ndarray):
    """Values over others that an earlier run has kept, which cannot be read."""

    def __getitem__(self, rows: Any) -> np.ndarray:
        raise Damaged("a page does not match its checksum")


def test_a_record_of_which_rows_cannot_be_read_is_not_kept(nights: Nights) -> None:
    with Writer(nights.store, 0, lambda own: [own]) as writer:
        record = writer.begin("d" * 32, layer=1, layers=3)
        record.put(tensor_like(nights.values), nights.values.view(Gone))
        assert record.keep() == "a page does not match its checksum"
    assert nights.store.sealed("d" * 32) is None


def test_blocks_stay_while_the_layers_of_an_attempt_refer_to_them(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = nights.store.key
    nights.keep(nights.move(np.array([3])))
    later = nights.storage
    monkeypatch.setattr(
        "embertide.io.versions.layers.sweeping._store_time",
        lambda *_: 1e12 + ABANDONED_AFTER.total_seconds(),
    )
    sweep(later, nights.output, {first}, {nights.store.key})
    assert nights.is_whole()
    (kept,) = list_layers(later, nights.output)
    assert kept.size >= ROWS * WIDTH * 4
    monkeypatch.undo()
    monkeypatch.setattr(writing, "BLOCK_BYTES", 30 * 24)
    monkeypatch.setattr(seals, "PAGE_BYTES", 100)
    with Attempt(later, nights.output, nights.store.key, nights.store.version) as attempt:
        attempt.begin()
        sweep(later, nights.output, {first, nights.store.key})
        (kept,) = list_layers(later, nights.output)
        assert remove_layers(later, nights.output, [kept]) == []
        assert nights.is_whole()


def test_blocks_go_with_the_last_layers_that_refer_to_them(nights: Nights) -> None:
    first = nights.store.key
    nights.keep(nights.move(np.array([3])))
    second = nights.store.key
    sweep(nights.storage, nights.output, {first}, {second})
    assert set(keys(nights.storage, nights.output)) == {first, second}
    nights.keep()
    sweep(nights.storage, nights.output, {second}, {nights.store.key})
    assert keys(nights.storage, nights.output) == [nights.store.key]


def test_all_is_removed_with_the_blocks_of_earlier_keys(nights: Nights) -> None:
    first = nights.store.key
    nights.keep(nights.move(np.array([3])))
    sweep(nights.storage, nights.output, {first}, {nights.store.key})
    kept = list_layers(nights.storage, nights.output)
    assert [item.key for item in kept] == [nights.store.key]
    assert remove_layers(nights.storage, nights.output, kept) == kept
    assert not Path(layers_uri(nights.output).removeprefix("file://")).exists()


def test_nothing_goes_where_a_seal_that_stays_cannot_be_read(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = nights.store.key
    nights.keep(nights.move(np.array([3])))
    read = LocalStore.read

    def refuse(store: LocalStore, uri: str) -> bytes:
        if uri.endswith(".seal.json") and nights.store.key in uri:
            raise StorageError("the store does not answer")
        return read(store, uri)

    before = nights.files()
    monkeypatch.setattr(LocalStore, "read", refuse)
    sweep(nights.storage, nights.output, {first}, {nights.store.key})
    monkeypatch.setattr(LocalStore, "read", read)
    assert nights.files() == before
    assert nights.is_whole()


def test_a_sweep_that_is_cut_short_leaves_what_is_referred_to(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any removal of an object; the next one removes the rest."""
    first = nights.store.key
    nights.keep(nights.move(np.array([3, 90])))
    second = nights.store.key
    nights.keep(nights.move(np.array([4, 91, 92])))
    delete, rest = LocalStore.delete, len(nights.files())
    for count in range(4):

        def some(store: LocalStore, uris: Iterator[str], count: int = count) -> None:
            every = list(uris)
            delete(store, every[:count])
            if every[count:]:
                raise StorageError("the sweep was cut short")

        monkeypatch.setattr(LocalStore, "delete", some)
        sweep(nights.storage, nights.output, {first, second}, {nights.store.key})
        assert nights.is_whole()
    monkeypatch.setattr(LocalStore, "delete", delete)
    sweep(nights.storage, nights.output, {first, second}, {nights.store.key})
    assert nights.files() == nights.referred()
    assert len(nights.files()) < rest


def test_pages_have_16_kib() -> None:
    """What docs/refresh/resume.md and some-nodes.md say."""
    assert PAGE_BYTES == 16 << 10
    for name in ("resume", "some-nodes"):
        assert "16 KiB" in Path(f"docs/refresh/{name}.md").read_text()


def test_the_share_of_patches_is_a_quarter() -> None:
    """What docs/refresh/changes.md says."""
    text = Path("docs/refresh/changes.md").read_text()
    assert writing.MOST_SHARE == 0.25
    assert "a quarter of the rows" in text


@pytest.mark.parametrize(
    ("rows", "columns", "some"),
    [
        ((3, 4), (9, 10), True),
        ((0, 3), (0, 9), True),
        ((0, 2), (9, 10), False),
        ((5, 9), (9, 10), False),
        ((3, 4), (0, 8), False),
        ((3, 4), (16, 20), False),
    ],
)
def test_blocks_that_have_some_of_a_range(
    rows: tuple[int, int], columns: tuple[int, int], some: bool
) -> None:
    assert overlaps(Block("", 2, 5, 8, 16, ""), rows, columns) == some
