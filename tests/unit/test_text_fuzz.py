"""Any bytes that are called csv end in rows, or in one of our errors, whatever the dialect."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

from embertide.errors import EmbertideError
from embertide.io.readers import text as read_text
from embertide.io.storage.protocol import Storage
from tests.support.edge_files import edge_input, read_all, rows_of

_PIECES = [
    *(bytes([value]) for value in (0, 9, 10, 10, 10, 13, 32, 34, 39, 44, 44, 44, 59, 92, 255)),
    *(
        b"\r\n",
        b"src,dst,w\n",
        b"1",
        b"12",
        b"-7",
        b"0.5",
        b"1e3",
        b"1,234",
        b"nan",
        b"1_0",
        b" 5 ",
    ),
    *(b"9" * 20, b"1" * 5000, b"x" * 140_000, b"#", b'""', b'"a\nb"', b"\\\n", b"1,2,3\n", b"PAR1"),
    *(
        "é".encode(),
        "é".encode("latin-1"),
        "1".encode("utf-16"),
        "\u0661".encode(),
        b"\xef\xbb\xbf",
    ),
    b"1,2,0.5\n" * 3,
]
_DIALECTS: list[dict[str, Any]] = [
    {},
    {"quote": ""},
    {"quote": "'"},
    {"escape": "\\"},
    {"comment": "#"},
    {"encoding": "latin-1"},
    {"encoding": "utf-16"},
    {"encoding": "shift_jis"},
]
_SHOWN_LINES, _SHOWN_CHARACTERS = 3, 3000


def _case(seed: int) -> tuple[bytes, str, dict[str, Any]]:
    """A file, its suffix and the fields of its input."""
    choose = random.Random(seed)
    data = b"".join(choose.choices(_PIECES, k=choose.randint(0, 30)))
    header = choose.random() < 0.7
    if choose.random() < 0.8:
        data = (b"src,dst,w\n" if header else b"1,2,3\n") + data
    named = {"source": "src", "destination": "dst", "weight": "w"}
    columns = named if header else {"source": 0, "destination": 1, "weight": 2}
    suffix = choose.choice(["", "", "", ".gz"])
    if suffix:
        data = gzip.compress(data, 1)
        cut = choose.choice([0, 0, 3])
        data = data[: len(data) - cut] + bytes(choose.choice([0, 0, 40]))
    delimiter = choose.choice([",", ",", ",", ";", " "])
    fields = {"header": header, "columns": columns, "delimiter": delimiter}
    return data, suffix, fields | {"dialect": choose.choice(_DIALECTS)}


def _read(path: Path, storage: Storage, seed: int) -> None:
    data, suffix, fields = _case(seed)
    path = path / f"{seed}.csv{suffix}"
    path.write_bytes(data)
    choose = random.Random(seed)
    ids = choose.choice(["dense", "int64", "string"])
    target = choose.choice([max(20, len(data) // 10), 1 << 20])
    try:
        rows_of(read_all(storage, edge_input(path, "csv", **fields), ids, target))
    except EmbertideError as error:
        text = str(error)
        assert path.name in text
        assert text.count("\n") < _SHOWN_LINES
        assert len(text) < _SHOWN_CHARACTERS
        return


@pytest.mark.parametrize("part", range(4))
def test_any_bytes(
    tmp_path: Path, storage: Storage, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_text, "BLOCK_BYTES", 64 if part % 2 else 4 << 20)
    for seed in range(100 * part, 100 * (part + 1)):
        _read(tmp_path, storage, seed)
