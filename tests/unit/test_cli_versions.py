"""Looking at published versions and going back, on real outputs: versions, neighbors, rollback."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import embertide
from embertide.errors import InputError
from embertide.io.storage.opening import open_storage
from embertide.io.versions.catalog import latest
from embertide.io.versions.parts import PartWriter
from embertide.io.versions.publish import publish
from embertide.spec.version_names import version_uri
from tests.support.cli import JOB
from tests.support.compared import publish_types
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


def test_a_template_is_read_at_any_time_unless_its_output_has_placeholders(
    cli: Cli, output: Path
) -> None:
    manifest = output.parent / "job.yaml"
    window = '{last: 7d, of: "dt=%Y-%m-%d", until: "{date-1d}"}'
    template = JOB.replace("uri: edges.parquet,", f"uri: edges, window: {window},")
    manifest.write_text(template.replace("x.parquet", "'{date}/x.parquet'"))
    code, out, err = cli("versions", str(manifest), "--json")
    assert (code, err, CURRENT in out) == (0, "", True)
    manifest.write_text(template.replace("uri: out", "uri: 'out/{date}'"))
    code, _, err = cli("versions", str(manifest))
    assert code == 2
    assert "spec.output.uri: {date} is a placeholder" in err
    assert "window" not in err


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


# neighbors of another node type

USERS = {"u_17": [1, 0], "u_18": [0, 1], "both": [1, 1]}
ITEMS = {"i_1": [0.9, 0.1], "i_2": [0, 3], "i_3": [0.5, 0.4], "both": [-1, 0]}


def typed(tmp_path: Path, **types: dict[Any, list[float]]) -> Path:
    """A version of users, items and further node types."""
    rows = {
        name: {key: np.array(value, np.float32) for key, value in of.items()}
        for name, of in {"user": USERS, "item": ITEMS, **types}.items()
    }
    publish_types(STORAGE, f"file://{tmp_path}/out", OLD, rows)
    return tmp_path / "out"


def near(answer: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [one.id for one in found] for name, found in answer.items()}


def test_items_of_a_user(cli: Cli, tmp_path: Path) -> None:
    output = typed(tmp_path)
    asked = ["neighbors", "--output", str(output), "--node-type", "item"]
    for more in ([], ["--from-type", "user"]):
        code, out, _ = cli(*asked, "u_17", *more, "--json")
        assert code == 0
        assert ids(json.loads(out)["embeddings"]) == {"u_17": ["i_1", "i_3", "i_2", "both"]}
    assert "Nearest to user u_17" in cli(*asked, "u_17")[1]
    # Its own type is asked first, and leaves the id itself out.
    assert near(embertide.neighbors(output, "both", node_type="item", k=1)) == {"both": ["i_2"]}
    found = embertide.neighbors(output, ["both", "u_18"], node_type="item", from_type="user", k=2)
    assert near(found) == {"both": ["i_3", "i_1"], "u_18": ["i_2", "i_3"]}
    l2 = embertide.neighbors(output, ["u_18"], node_type="item", metric="l2", k=1)
    assert near(l2) == {"u_18": ["i_3"]}


def test_ids_of_numbers_are_those_of_the_type_that_is_named(tmp_path: Path) -> None:
    output = typed(tmp_path, shop={1: [0, 1], 2: [1, 1]}, tag={1: [1, 0]})
    assert near(embertide.neighbors(output, 1, node_type="shop")) == {"1": [2]}
    found = embertide.neighbors(output, [1], node_type="shop", from_type="tag")
    assert near(found) == {"1": [2, 1]}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["u_17"], "several node types; choose one of user, item, tag (node_type=, or --node-type"),
        (["u_19", "--node-type", "item"], "no id 'u_19' in {out} version {version}, item, which"),
        (["u_19", "--node-type", "item"], "; node types user do not have it either"),
        (["t_1", "--node-type", "item"], "embeddings of tag have another length than 2"),
        (
            ["t_1", "--node-type", "item", "--from-type", "tag"],
            "embeddings of tag have 3 values and those of item 2; only those of one length",
        ),
        (["i_1", "--node-type", "item", "--from-type", "user"], "no id 'i_1' in {out} version"),
        (["u_17", "--node-type", "item", "--from-type", "usr"], "no node type 'usr'; it has user"),
    ],
)
def test_neighbors_that_cannot_be_found(
    cli: Cli, tmp_path: Path, asked: list[str], says: str
) -> None:
    output = typed(tmp_path, tag={"t_1": [1, 2, 3]})
    code, _, err = cli("neighbors", "--output", str(output), *asked)
    assert code == 3
    assert says.format(out=f"file://{output}", version=OLD) in " ".join(err.split())


def test_an_id_of_several_other_types_is_a_question(tmp_path: Path) -> None:
    output = typed(tmp_path, shop={"u_17": [0, 1]})
    with pytest.raises(InputError, match=r"'u_17' is in several node types, user, shop; choose"):
        embertide.neighbors(output, "u_17", node_type="item")
    with pytest.raises(ValueError, match=r"metric 'cos'; must be .* cosine, dot or l2"):
        embertide.neighbors(output, "u_17", node_type="item", metric="cos")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["neighbors", "42"], "give JOB.yaml and ID, or --output URI and ID"),
        (["neighbors", "--output", "out", "1", "--features"], "--features needs JOB.yaml"),
        (
            ["neighbors", "job.yaml", "1", "--features", "--from-type", "user"],
            "--features compares nodes of one type",
        ),
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
