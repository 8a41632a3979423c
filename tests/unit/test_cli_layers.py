"""``embertide layers``: what is kept below an output, and removing it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers.attempts import Attempt
from embertide.io.versions.layers.seals import KeptEdges, Seal
from embertide.io.versions.layers.store import LayerStore
from tests.support.kept import tensor_like, write_record
from tests.support.versions import CURRENT, publish_one

Cli = Callable[..., tuple[int, str, str]]
STORAGE = open_storage()
KEY, NAME = "a" * 32, "c" * 32


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A version, and a kept layer beside it."""
    uri = f"file://{tmp_path}/out"
    publish_one(STORAGE, uri, CURRENT)
    store = LayerStore(STORAGE, uri, KEY, CURRENT)
    values = np.ones((1000, 8), np.float32)
    tensor, places = tensor_like(values), [(0, 1000, 0, 8)]
    store.seal(write_record(store, NAME, tensor, values, places, layer=2, layers=3).seal)
    return tmp_path / "out"


def test_what_is_kept_is_listed(cli: Cli, output: Path) -> None:
    code, out, _ = cli("layers", "--output", str(output))
    assert code == 0
    assert KEY in out
    assert "2 of 3" in out
    assert "31." in out  # KiB
    (kept,) = json.loads(cli("layers", "--output", str(output), "--json")[1])
    assert (kept["key"], kept["layers"], kept["in_use"]) == (KEY, [2], False)
    assert kept["removed"] is False
    assert kept["size"] > 32000


def test_digests_of_rows_are_no_layer(cli: Cli, output: Path) -> None:
    store = LayerStore(STORAGE, output.as_uri(), KEY, CURRENT)
    name = "d" * 32
    store.seal(Seal(key=KEY, name=name, version=CURRENT, layer=0, layers=0, feature=1, tensors=()))
    _, out, _ = cli("layers", "--output", str(output))
    assert "2 of 3" in out
    assert f"{KEY} is for the next run, with digests of rows" in out
    (kept,) = json.loads(cli("layers", "--output", str(output), "--json")[1])
    assert (kept["layers"], kept["of"], kept["with_digests"]) == ([2], 3, True)


def test_a_graph_is_neither_a_layer_nor_digests(cli: Cli, output: Path) -> None:
    store = LayerStore(STORAGE, output.as_uri(), KEY, CURRENT)
    edges = KeptEdges("node:edge:node", 20, None)
    store.seal(
        Seal(
            key=KEY, name="e" * 32, version=CURRENT, layer=0, layers=0, feature=1, tensors=(),
            edges=edges,
        )
    )  # fmt: skip
    _, out, _ = cli("layers", "--output", str(output))
    assert "2 of 3" in out
    assert f"{KEY} has the graph, which is read in place of its edges" in " ".join(out.split())
    (kept,) = json.loads(cli("layers", "--output", str(output), "--json")[1])
    assert (kept["layers"], kept["with_digests"], kept["with_graph"]) == ([2], False, True)


def test_it_is_no_version_and_no_reader_sees_it(cli: Cli, output: Path) -> None:
    (version,) = json.loads(cli("versions", "--output", str(output), "--json")[1])
    assert version["version"] == CURRENT


def test_it_is_removed_on_request(cli: Cli, output: Path) -> None:
    code, out, _ = cli("layers", "--output", str(output), "--remove")
    assert (code, "removed 3" in out) == (0, True)
    assert not (output / "_layers").exists()
    code, out, _ = cli("layers", "--output", str(output), "--remove")
    assert (code, out) == (0, f"no layers are kept below file://{output}\n")
    assert json.loads(cli("layers", "--output", str(output), "--json")[1]) == []


def test_what_an_attempt_uses_stays(cli: Cli, output: Path) -> None:
    with Attempt(STORAGE, f"file://{output}", KEY, CURRENT) as attempt:
        attempt.begin()
        code, out, _ = cli("layers", "--output", str(output), "--remove")
    assert code == 0
    assert f"stays: {KEY} is in use by an attempt" in out.replace("\n", " ")
    assert (output / "_layers").exists()


def test_a_damaged_record_is_told(cli: Cli, output: Path) -> None:
    seal = next(output.glob("_layers/*/*.seal.json"))
    seal.write_text("{}")
    code, out, _ = cli("layers", "--output", str(output))
    assert (code, "none complete" in out) == (0, True)
    assert "is computed again" in " ".join(out.split())
