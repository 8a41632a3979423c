"""Looking at published versions and going back, on real outputs: versions, neighbors, rollback."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from embertide.spec.version_names import version_uri
from embertide.storage.opening import open_storage
from embertide.versions.catalog import latest
from embertide.versions.parts import PartWriter
from embertide.versions.publish import publish
from tests.support.cli import JOB
from tests.support.versions import CURRENT, NEXT, OLD, publish_one

Cli = Callable[..., tuple[int, str, str]]
STORAGE = open_storage()
MIXED = ["item:1", "item:2", "item:3", "user:1", "user:2"]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Two versions, the later one current."""
    for version in (OLD, CURRENT):
        publish_one(STORAGE, f"file://{tmp_path}/out", version)
    return tmp_path / "out"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """One version with ids of two kinds."""
    uri = f"file://{tmp_path}/out"
    folder = version_uri(uri, OLD)
    writer = PartWriter(
        STORAGE, f"{folder}/part-00000", format="parquet", dtype="float32", ids_kind="string",
        width=2, rows=5,
    )  # fmt: skip
    with writer:
        values = np.array([[1, 0], [0.9, 0.1], [0, 1], [1, 0], [0.5, 0.5]], np.float32)
        writer.write(pa.array(MIXED, pa.large_string()), values)
    writer.verify()
    manifest = {"rows": 5, "dim": 2, "parts": [asdict(writer.digest)]}
    publish(STORAGE, uri, OLD, manifest, 1)
    return tmp_path / "out"


def current(output: Path) -> str:
    return latest(STORAGE, f"file://{output}").version


# rollback


def test_previous_is_the_version_before_the_current_one(cli: Cli, output: Path) -> None:
    publish_one(STORAGE, f"file://{output}", NEXT)
    for version in (CURRENT, OLD):
        code, out, _ = cli("rollback", "--output", str(output), "previous")
        assert (code, current(output)) == (0, version)
        assert out == f"{version} is now the current version of file://{output}\n"
    code, out, err = cli("rollback", "--output", str(output), "previous")
    assert (code, out, current(output)) == (5, "", OLD)
    assert f"file://{output} has no version before the current one, {OLD}" in err


def test_rollback_with_a_manifest_and_without(cli: Cli, output: Path) -> None:
    manifest = output.parent / "job.yaml"
    manifest.write_text(JOB)
    assert cli("rollback", str(manifest), "previous")[0] == 0
    assert current(output) == OLD
    code, out, _ = cli("rollback", "--output", str(output), CURRENT, "--json")
    assert (code, json.loads(out)["version"], current(output)) == (0, CURRENT, CURRENT)


def test_previous_of_nothing(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli("rollback", "--output", str(tmp_path / "none"), "previous")
    assert code == 5
    assert "nothing was published to" in err


# neighbors


def ids(found: dict[str, list[dict[str, object]]]) -> dict[str, list[object]]:
    return {name: [near["id"] for near in row] for name, row in found.items()}


def test_neighbors_without_a_manifest(cli: Cli, output: Path) -> None:
    code, out, _ = cli("neighbors", "--output", str(output), "3", "-k", "2", "--json")
    assert code == 0
    assert [len(near) for near in json.loads(out)["embeddings"].values()] == [2]


def test_an_unknown_id_does_not_discard_the_others(cli: Cli, output: Path) -> None:
    code, out, err = cli("neighbors", "--output", str(output), "3", "99", "4", "-k", "2")
    assert code == 3
    assert "Nearest to 3" in out
    assert "Nearest to 4" in out
    assert "99" not in out
    assert err.startswith(f"embertide: error: no id '99' in file://{output} version {CURRENT}")
    code, out, _ = cli("neighbors", "--output", str(output), "3", "99", "--json")
    found, error = map(json.loads, out.splitlines())
    assert (code, list(found["embeddings"])) == (3, ["3"])
    assert error["error"] == "InputError"


@pytest.mark.parametrize(
    "words",
    [["-5"], ["3", "-5"], ["-5", "-k", "2"], ["--", "-5"], ["-5", "--json"], ["-k", "1", "-52"]],
)
def test_negative_ids(cli: Cli, output: Path, words: list[str]) -> None:
    code, _, err = cli("neighbors", "--output", str(output), *words)
    assert code == 3
    assert err.startswith("embertide: error: no id '-5")


@pytest.mark.parametrize("word", ["-x", "--metrik", "-5x"])
def test_options_that_are_none(cli: Cli, output: Path, word: str) -> None:
    code, _, err = cli("neighbors", "--output", str(output), "3", word)
    assert code == 2
    assert "No such option" in err


def test_only_unknown_ids(cli: Cli, output: Path) -> None:
    code, out, err = cli("neighbors", "--output", str(output), "99")
    assert (code, out) == (3, "")
    assert "ids from 0 to 6" in err


def test_a_prefix_restricts_and_shortens(cli: Cli, mixed: Path) -> None:
    argv = ["neighbors", "--output", str(mixed), "1", "user:2", "--prefix", "item:"]
    code, out, _ = cli(*argv, "--json")
    assert code == 0
    assert ids(json.loads(out)["embeddings"]) == {
        "item:1": ["item:2", "item:3"],
        "user:2": ["item:2", "item:1", "item:3"],
    }
    _, out, _ = cli(*argv)
    assert "Nearest to item:1" in out


def test_numbers_have_no_prefix(cli: Cli, output: Path) -> None:
    code, _, err = cli("neighbors", "--output", str(output), "1", "--prefix", "item:")
    assert code == 3
    assert "prefix 'item:' needs string ids" in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["neighbors", "42"], "give JOB.yaml and ID, or --output URI and ID"),
        (["neighbors", "--output", "out", "1", "--features"], "--features needs JOB.yaml"),
        (["neighbors", "--output", "out", "job.yaml", "1"], "either JOB.yaml or --output"),
        (["rollback", "previous"], "give JOB.yaml and VERSION, or --output URI and VERSION"),
        (["rollback", "job.yaml", OLD, CURRENT], "give one VERSION, not 2"),
        (["rollback", "--output", "out"], "Missing argument"),
        (["rollback", "job.yaml", OLD, "--endpoint-url", "http://x"], "goes with --output"),
    ],
)
def test_command_lines_that_are_refused(
    cli: Cli, output: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], message: str
) -> None:
    monkeypatch.chdir(output.parent)
    Path("job.yaml").write_text(JOB)
    code, out, err = cli(*argv)
    assert (code, out) == (2, "")
    words = " ".join(err.replace("│", " ").split())
    assert message in words
    assert current(output) == CURRENT
