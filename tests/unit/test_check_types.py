"""``embertide check`` on several node types and features of edges: one error for each mistake, told
before the graph is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml

from embertide.edge.check.check import Checked, check_job
from embertide.errors import InputError, ModelError
from embertide.facts.telemetry.progress import Progress
from embertide.spec.manifest import load_manifest
from tests.support.typed_files import names_of, write_typed_job
from tests.support.typed_programs import carrying_on
from tests.support.typed_world import expected_of

Cli = Callable[..., tuple[int, str, str]]
Manifest = dict[str, Any]
Mistake = Callable[[Path, Manifest], object]


def write_reference(folder: Path, node_type: str, *, columns: int | None = None) -> None:
    """The vectors of some users, items or tags, or so many of their columns."""
    ids, vectors = names_of(node_type)[:9], expected_of(carrying_on())[node_type][:9]
    rows = vectors.float()[:, :columns].tolist()
    pq.write_table(pa.table({"id": ids, "embedding": rows}), folder / "reference.parquet")


def checked(folder: Path, mistake: Mistake = lambda _folder, _job: None, **more: Any) -> Checked:
    """What a check of users' vectors finds."""
    job = write_typed_job(folder, carrying_on(), edge_features=True)
    write_reference(folder, more.get("node_type", "user"))
    mistake(folder, job)
    given = {"node_type": "user"} | more
    against = f"file://{folder}/reference.parquet"
    return check_job(load_manifest(yaml.safe_dump(job)), against, **given)


@pytest.mark.tier(2)
@pytest.mark.parametrize("node_type", ["user", "item", "tag"])
def test_right_vectors_of_each_type_agree(tmp_path: Path, node_type: str) -> None:
    found = checked(tmp_path, node_type=node_type)
    assert found.agrees
    assert found.node_type == node_type


def buys(change: Callable[[pa.Table], pa.Table]) -> Mistake:
    """Changes the edges of ``buys``, which have weights and two features."""

    def mistake(folder: Path, _job: Manifest) -> None:
        path = folder / "buys.csv"
        pa.csv.write_csv(change(pa.csv.read_csv(path)), path)

    return mistake


def users(change: Callable[[list[Any]], list[Any]]) -> Mistake:
    """Changes the features of users."""

    def mistake(folder: Path, _job: Manifest) -> None:
        path = folder / "user" / "x.parquet"
        table = pq.read_table(path)
        vectors = pa.array(change(table["x"].to_pylist()))
        pq.write_table(pa.table({"id": table["id"], "x": vectors}), path)

    return mistake


def items(change: Callable[[np.ndarray], np.ndarray]) -> Mistake:
    """Changes the features of items."""

    def mistake(folder: Path, _job: Manifest) -> None:
        np.save(folder / "item" / "x.npy", change(np.load(folder / "item" / "x.npy")))

    return mistake


def edge_type(**fields: Any) -> Mistake:
    """Changes what the manifest says of ``buys``; None leaves a field out."""

    def mistake(_folder: Path, job: Manifest) -> None:
        edge = job["spec"]["input"]["edges"][0]
        edge |= fields
        for name in [name for name, value in fields.items() if value is None]:
            del edge[name]

    return mistake


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


def put(values: list[Any], at: int, value: Any) -> list[Any]:
    return [*values[:at], value, *values[at + 1 :]]


NAN = float("nan")
MISTAKES: dict[str, tuple[Mistake, type[Exception], str]] = {
    "no such column of edge features": (
        buys(lambda t: t.drop_columns(["f1"])), InputError,
        "/buys.csv has no column 'f1' (features.columns); the columns in its first line are",
    ),
    "words in a column of edge features": (
        buys(lambda t: with_column(t, "f1", ["x"] * len(t))), InputError,
        "/buys.csv line 2: column 'f1' (features.columns) is 'x'; it must be a number",
    ),
    "NaN in a column of edge features": (
        buys(lambda t: with_column(t, "f0", put(t["f0"].to_pylist(), 7, NAN))), InputError,
        "/buys.csv line 9: column 'f0' (features.columns) is nan; features of edges must be finite",
    ),
    "a weight that is infinite": (
        buys(lambda t: with_column(t, "w", put(t["w"].to_pylist(), 3, float("inf")))), InputError,
        "/buys.csv line 5: column 'w' (columns.weight) is inf; weights must be finite",
    ),
    "fewer edge features than the model takes": (
        edge_type(features={"columns": ["f0"]}), ModelError,
        "/buys.csv: each edge of user:buys:item has 1 feature, but the model",
    ),
    "no edge features": (
        edge_type(features=None), ModelError,
        "reads 2 features of each edge of user:buys:item, but edge type 'buys' in spec.input.edges"
        " has none; name them in its features",
    ),
    "no reverse": (
        edge_type(reverse=None), ModelError, "reads the relation item:bought_by:user, but",
    ),
    "ends that are the wrong way round": (
        edge_type(columns={"source": "dst", "destination": "src", "weight": "w"}), InputError,
        "/buys.csv line 2: column 'src' (columns.destination, node type 'item') is 'user-",
    ),
    "words in features of nodes": (
        users(lambda rows: ["a"] * len(rows)), InputError,
        "/user/x.parquet row 0 (from 0): column 'x' (features.vectorColumn) is 'a'; a vector",
    ),
    "NaN in features of nodes": (
        users(lambda rows: put(rows, 3, [NAN] * 7)), InputError,
        "of the first 61 feature rows of node type 'user' some have NaN or infinite values, first"
        " node id 'user-",
    ),
    "narrower features of a type": (
        items(lambda rows: rows[:, :2]), ModelError,
        "/item: the features have 2 columns, but the model",
    ),
    "features that are no numbers": (
        items(lambda rows: rows.astype("U5")), InputError,
        "/item/x.npy holds <U5; features must be numbers",
    ),
    "another type's vectors": (
        lambda folder, _job: write_reference(folder, "item"), InputError,
        "It is read as vectors of node type 'user'; --node-type sets another one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told_before_the_graph_is_read(tmp_path: Path, name: str) -> None:
    mistake, kind, says = MISTAKES[name]
    events: list[Progress] = []
    with pytest.raises(kind) as caught:
        checked(tmp_path, mistake, on_progress=events.append)
    assert says in str(caught.value)
    assert [event.stage for event in events] == []


@pytest.mark.tier(2)
def test_vectors_of_another_width_and_ids_of_another_type(tmp_path: Path) -> None:
    found = checked(tmp_path, lambda folder, _job: write_reference(folder, "user", columns=2))
    assert not found.agrees
    assert str(found).endswith("have 2 columns, but the model gives 5 for node type 'user'.")

    def mixed(folder: Path, _job: Manifest) -> None:
        rows = {"id": ["user-0", "item-1"], "embedding": [[0.0] * 5, [1.0] * 5]}
        pq.write_table(pa.table(rows), folder / "reference.parquet")

    with pytest.raises(InputError, match=r"1 of 2 ids are not among the 61 nodes of type 'user'"):
        checked(tmp_path / "ids", mixed)


@pytest.mark.tier(2)
def test_the_command_says_it_without_a_traceback(cli: Cli, tmp_path: Path) -> None:
    job = write_typed_job(tmp_path, carrying_on(), edge_features=True)
    job["spec"]["input"]["edges"][0]["features"]["columns"] = ["f0", "price"]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    write_reference(tmp_path, "user")
    paths = str(tmp_path / "job.yaml"), "--against", str(tmp_path / "reference.parquet")
    code, out, err = cli("check", *paths, "--node-type", "user", "-q")
    assert (code, out) == (InputError.exit_code, "")
    assert err.startswith("embertide: error: file://")
    assert "/buys.csv has no column 'price' (features.columns)" in err
    assert "Traceback" not in err
