"""The embeddings of some ids: right, in order, and from the parts that have them alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import embertide
from embertide.errors import InputError
from embertide.io.storage.protocol import Storage
from embertide.io.versions.formats import FORMATS
from embertide.io.versions.lookup import read_rows_of
from tests.support.compared import in_order, publish_rows, random_rows
from tests.support.versions import CURRENT, OLD, hooked

COUNT, WIDTH = 400, 5
CUTS = tuple(at / 10 for at in range(1, 10))


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", ["dense", "int64", "string"])
def test_rows_come_in_the_order_of_the_ids(
    storage: Storage, output: str, kind: str, format: str, keys: bool
) -> None:
    rows = random_rows(COUNT, WIDTH, 1, text=kind == "string")
    publish_rows(storage, output, OLD, rows, kind=kind, format=format, cuts=CUTS, keys=keys)
    ids: list[Any] = list(np.random.default_rng(2).permutation(list(rows))[:60].tolist())
    found = read_rows_of(storage, output, [*ids, ids[0]])
    got, vectors = found.to_numpy()
    assert got.tolist() == ids
    np.testing.assert_array_equal(vectors, np.stack([rows[name] for name in ids]))


@pytest.mark.parametrize("format", FORMATS)
def test_only_parts_that_have_the_ids_are_opened(
    storage: Storage, output: str, format: str
) -> None:
    rows = random_rows(COUNT, WIDTH, 3)
    publish_rows(storage, output, OLD, rows, cuts=CUTS, format=format)
    ids, _ = in_order(rows, "int64")
    opened: list[str] = []

    def note(operation: str, uri: str) -> None:
        name = uri.rsplit("/")[-1]
        if operation in ("open", "read", "read_range") and name.startswith("part-"):
            opened.append(name)

    watched = hooked(storage, note)
    read_rows_of(watched, output, [int(ids[45]), int(ids[46]), int(ids[399])])
    assert {name[:10] for name in opened} == {"part-00001", "part-00009"}


def test_an_unknown_id_is_named_or_left_out(storage: Storage, output: str) -> None:
    rows = random_rows(COUNT, WIDTH, 4)
    publish_rows(storage, output, OLD, rows)
    known = next(iter(rows))
    unknown = [10**9 + at for at in range(7)]
    with pytest.raises(InputError) as error:
        read_rows_of(storage, output, [known, *unknown])
    assert "7 of 8 ids are not in" in str(error.value)
    assert "1000000000, 1000000001, 1000000002, 1000000003, 1000000004 and 2 more" in str(
        error.value
    )
    assert len(read_rows_of(storage, output, [known, *unknown], missing="skip")) == 1
    assert len(read_rows_of(storage, output, unknown, missing="skip")) == 0
    assert read_rows_of(storage, output, [], missing="skip").to_numpy()[1].shape == (0, WIDTH)


@pytest.mark.parametrize(
    ("kind", "ids", "message"),
    [
        ("int64", ["3"], "ids that are whole numbers; '3' is none"),
        ("string", [3], "ids that are strings; 3 is none"),
        ("int64", [1.5], "whole numbers of 64 bits"),
        ("int64", [2**63], "whole numbers of 64 bits"),
    ],
)
def test_ids_of_another_type_are_refused(
    storage: Storage, output: str, kind: str, ids: Any, message: str
) -> None:
    publish_rows(storage, output, OLD, random_rows(9, WIDTH, 5, kind == "string"), kind=kind)
    with pytest.raises(InputError, match=message):
        read_rows_of(storage, output, ids)


def test_python_reads_arrays_of_ids(storage: Storage, tmp_path: Path, output: str) -> None:
    rows = random_rows(COUNT, WIDTH, 6)
    publish_rows(storage, output, OLD, rows)
    publish_rows(storage, output, CURRENT, {name: 2 * row for name, row in rows.items()})
    wanted = np.array(list(rows)[:5])
    ids, vectors = embertide.read(tmp_path / "out", OLD, ids=wanted).to_numpy()
    np.testing.assert_array_equal(ids, wanted)
    np.testing.assert_array_equal(vectors, np.stack([rows[name] for name in wanted]))
    _, doubled = embertide.read(tmp_path / "out", ids=wanted).to_numpy()
    np.testing.assert_array_equal(doubled, 2 * vectors)


@pytest.mark.tier(2)
def test_reading_some_rows_needs_no_torch(storage: Storage, tmp_path: Path, output: str) -> None:
    publish_rows(storage, output, OLD, random_rows(20, WIDTH, 7))
    program = (
        "import sys, embertide\n"
        f"embertide.read({str(tmp_path / 'out')!r}, ids=[1, 2, 3], missing='skip')\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
