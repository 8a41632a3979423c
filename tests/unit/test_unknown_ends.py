"""What messages add to edges whose end is not among the nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embertide.errors import InputError
from embertide.io.readers.edges import read_edges, split_edges
from embertide.io.readers.unknown_nodes import UnknownEnds, _Example, settle
from embertide.io.readers.where import Where
from embertide.io.storage.protocol import Storage
from tests.support.edge_files import edge_input, write_parquet


def said(
    storage: Storage, path: Path, ids: Any, nodes: list[Any], src: list[Any], dst: list[Any]
) -> str:
    """The refusal of the edges whose ends are not among the nodes."""
    write_parquet(path / "e.parquet", src=src, dst=dst)
    edges, unknown = edge_input(path / "e.parquet", "parquet"), UnknownEnds()
    counts = (len(nodes), len(nodes))
    for split in split_edges(storage, edges):
        for batch in read_edges(storage, edges, (ids, ids), split, counts=counts):
            sources, ends = batch.beyond
            if ids == "string":
                found = [ids.to_numpy(False) for ids in (batch.source, batch.destination)]
                sources, ends = (~np.isin(f, nodes) for f in found)
            unknown.known_of(batch, sources, ends)
    with pytest.raises(InputError) as caught:
        settle(lambda ours: [ours], 0, edges, unknown, len(src), ["2 nodes"], counts)
    return str(caught.value)


def test_a_relation_that_no_row_has(tmp_path: Path) -> None:
    where = {"column": "type", "equals": "buys"}
    edges = edge_input(tmp_path / "e", "parquet", where=where)
    with pytest.raises(InputError, match=r"/e has no row in which column 'type' \(where.column\)"):
        settle(lambda ours: [ours], 0, edges, UnknownEnds(), 0, [], (2, 2))
    empty = edge_input(tmp_path / "e", "parquet", where=where, optional=True)
    assert settle(lambda ours: [ours], 0, empty, UnknownEnds(), 0, [], (2, 2)) is None


@pytest.mark.parametrize(
    ("src", "dst", "from_one"),
    [
        ([1, 2, 3, 4], [2, 3, 4, 1], True),
        ([1, 2, 3, 4], [2, 3, 1, 1], True),
        ([1, 2, 3, 5], [2, 3, 4, 1], False),
        ([0, 2, 3, 9], [2, 3, 1, 1], False),
    ],
)
def test_ids_that_begin_at_one(
    tmp_path: Path, storage: Storage, src: list[int], dst: list[int], from_one: bool
) -> None:
    message = said(storage, tmp_path, "dense", [0, 1, 2, 3], src, dst)
    assert ("the ids seem to begin at 1, but nodes are rows, which count from 0" in message) == (
        from_one
    )
    assert ("drop" in message.replace("Correct or drop", "")) != from_one


def test_edges_of_known_nodes_are_kept(tmp_path: Path, storage: Storage) -> None:
    write_parquet(tmp_path / "e.parquet", src=[0], dst=[1])
    edges = edge_input(tmp_path / "e.parquet", "parquet")
    (split,) = split_edges(storage, edges)
    (batch,) = read_edges(storage, edges, ("dense", "dense"), split)
    assert UnknownEnds().known_of(batch, None, None) is None


def test_parts_of_an_input_share_the_examples() -> None:
    known: list[Any] = ["a", "b", "c", "d"]
    ends = UnknownEnds(1, known[:1], {("source", 4)})
    ends.add(UnknownEnds(5, known[1:], {("source", 5)}))
    assert ends == UnknownEnds(6, known[:3], {("source", 4), ("source", 5)})


def test_a_rank_adds_no_examples_to_enough_of_those_before_it(tmp_path: Path) -> None:
    edges = edge_input(
        tmp_path / "e", "parquet", unknownNodes={"action": "drop", "maxShare": "50%"}
    )
    given: list[Any] = []

    def gather(ours: Any) -> list[Any]:
        given.append(ours)
        return [["a", "b", "c"], ours] if len(given) == 2 else [(3, 4, 3, []), ours]

    unknown = UnknownEnds(edges=1, examples=[_Example(Where("e", 0), 0, "source", 9)])
    dropped = settle(gather, 1, edges, unknown, 4, [], (4, 4))
    assert dropped is not None
    assert dropped.examples == ["a", "b", "c"]
    assert given[1] == []


@pytest.mark.parametrize("row", [-1, -(2**63)])
def test_a_negative_row_is_refused_where_strangers_are_left_out(
    tmp_path: Path, storage: Storage, row: int
) -> None:
    with pytest.raises(InputError, match=rf"row 1 \(from 0\).*{row}"):
        said(storage, tmp_path, "dense", [0, 1], [0, row], [1, 9])


def test_dropped_edges_of_ids_that_begin_at_one(tmp_path: Path) -> None:
    edges = edge_input(
        tmp_path / "e", "parquet", unknownNodes={"action": "drop", "maxShare": "50%"}
    )
    unknown = UnknownEnds(edges=1, beyond={("source", 4)})
    dropped = settle(lambda ours: [ours], 0, edges, unknown, 4, [], (4, 4))
    assert dropped is not None
    assert "the ids seem to begin at 1" in dropped.examples[-1]


@pytest.mark.parametrize(
    ("stranger", "hint"),
    [
        ("dst", " is 'dst' (the name of the column: a header within the file"),
        ("a ", " is 'a ' (with blanks around it, which count: remove them)"),
        ("1.25018E+18", "(it was rounded before it was written, as spreadsheets do"),
        ('a\\"', "(backslashes before quotes? Then write dialect: {escape: '\\\\'})"),
        ("c", " is 'c'. There"),
    ],
)
def test_texts_that_look_wrong(tmp_path: Path, storage: Storage, stranger: str, hint: str) -> None:
    assert hint in said(storage, tmp_path, "string", ["a", "b"], ["a", "b"], ["b", stranger])
