"""Rows of new or chosen nodes over the rows that a version has kept of their neighbours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from safetensors.numpy import load_file, save_file

import embertide
from embertide.context import RunContext
from embertide.engine.pipeline import embed, typed_graph
from embertide.engine.pipeline.embed import embed_over_kept
from embertide.engine.stages.features import LoadedNodes, read_some_features
from embertide.spec.manifest import load_manifest
from tests.support.commands import Done
from tests.support.export_results import WIDTH, Layers
from tests.support.models import shake
from tests.support.over_kept import over_kept_cases
from tests.support.ranks import on_grid
from tests.support.refreshed_job import NightlyJob
from tests.support.same import cases_of
from tests.support.tiers import later
from tests.support.world import GRAPHS

pytestmark = pytest.mark.distributed

OVER_KEPT = ("--over-kept",)
MANY, EXACT = {2: 25, 3: 120}, {2: 12, 3: 70}
"""By tier, how many models at least need no more of neighbours than rows that are kept, and how
many of these have the same bits among other rows."""


def test_the_row_is_that_of_a_run_in_which_only_new_nodes_are_new(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    tier: int = pytestconfig.option.tier
    every = cases_of("models" if tier == 3 else "cover")
    # In the directed graph some nodes have no in-edges, as the expectation needs.
    cases = {
        name: (c.program, c.weighted,
               c.graph if c.kind == "featured" else GRAPHS["directed", c.weighted])
        for name, c in every.items() if c.kind != "types"
    }  # fmt: skip
    (answers,) = on_grid(1, 1, over_kept_cases, cases, tmp_path.as_uri())
    rows = {name: answer for name, answer in answers.items() if answer.row is not None}
    wrong = {}
    for name, answer in rows.items():
        error = np.abs(answer.row - answer.expected).max() / np.abs(answer.expected).max()
        same = np.array_equal(answer.row, answer.expected)
        if not (same if answer.exact else error < 1e-5):
            wrong[name] = float(error), answer.exact
    assert not wrong
    assert len(rows) >= MANY[tier]
    assert sum(answer.exact for answer in rows.values()) >= EXACT[tier]
    # The new neighbour's row, too, where it is read between layers.
    assert {answer.computed for answer in rows.values()} == {1, 2}
    for answer in answers.values():
        if answer.row is None:
            assert answer.why.startswith("--over-kept: ")
            assert "so that rows cannot be computed over kept ones; leave it out" in answer.why


def _rows(done: Done) -> tuple[list[int], np.ndarray, dict[str, object]]:
    """Ids, vectors, and what these rest on."""
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in done.out.splitlines()]
    (over,) = {json.dumps(line["over"]) for line in lines}
    vectors = np.array([line["embedding"] for line in lines], np.float32)
    return [line["id"] for line in lines], vectors, json.loads(over)


@pytest.fixture
def job(tmp_path: Path) -> NightlyJob:
    made = NightlyJob(tmp_path, "--scale", "10", "--conv", "sage", "--width", "8", "--hidden", "8")
    made.set(keep=True)
    return made


def test_where_nothing_has_changed_the_kept_results_are_read(job: NightlyJob) -> None:
    version = job.night("2x1")["version"]
    before = sorted(str(path) for path in (job.path / "embeddings").rglob("*"))
    done = job.embed(5, 900, words=OVER_KEPT)
    ids, vectors, over = _rows(done)
    assert (ids, over["version"]) == ([5, 900], version)
    _, published = embertide.read(job.path / "embeddings", ids=[5, 900]).to_numpy()
    assert np.array_equal(vectors, published)
    assert f"nothing has changed: they are those that version {version} has kept" in done.err
    assert "ingest" not in done.err
    assert sorted(str(path) for path in (job.path / "embeddings").rglob("*")) == before
    unknown = job.embed(5, 4096, words=OVER_KEPT)
    assert unknown.code == 3
    assert "--ids has 4096, but" in unknown.message
    assert "no such node among its 1024" in unknown.message


@pytest.mark.parametrize(
    ("conv", "grid"),
    later([("sage", "1x1"), ("gcn", "1x1"), ("gcn", "2x2")], ("gcn", "2x2"), several=True),
)
def test_after_unrelated_changes_rows_are_those_of_the_version(
    conv: str, grid: str, tmp_path: Path
) -> None:
    job = NightlyJob(tmp_path, "--scale", "10", "--conv", conv, "--width", "8", "--hidden", "8")
    job.set(keep=True)
    version = job.night(grid)["version"]
    job.add_nodes("", 1)
    ids, vectors, over = _rows(job.embed(17, 900, words=OVER_KEPT))
    read, published = embertide.read(job.path / "embeddings", ids=[17, 900]).to_numpy()
    assert ids == read.tolist() == [17, 900]
    # Slices of columns add products up in another order.
    same = np.array_equal if grid == "1x1" else np.allclose
    assert same(vectors, published)
    assert over == {"version": version, "tolerance": 0.0, "new": 0, "newer": 0}


def test_a_new_node_and_a_new_neighbour_of_it(job: NightlyJob) -> None:
    version = job.night("1x1")["version"]
    one, other = job.add_nodes("", 2)
    job.add_edges("", [(4, one), (900, one), (one, other), (17, other), (3, other)])
    # A run in which nothing but these nodes is new.
    expected = job.whole_rows()[""][[other, 5]]
    job.change_edges(3, count=300)
    done = job.embed(other, 5, words=OVER_KEPT)
    ids, vectors, over = _rows(done)
    assert ids == [other, 5]
    assert np.array_equal(vectors[0], expected[0])
    assert over == {"version": version, "tolerance": 0.0, "new": 1, "newer": 0}
    assert f"neighbours have the rows and degrees that version {version} has kept" in done.err
    assert "1 new neighbours, which it does not have, were computed alike" in done.err
    # As the inputs are now it is another row: far more has changed.
    assert not np.allclose(job.whole_rows()[""][other], vectors[0], rtol=1e-3)
    whole = job.embed(other)
    assert "are not used: inputs, model or job have changed" in whole.err


def test_a_result_that_a_later_layer_reads_is_that_of_the_nodes_asked_for(tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "8", "--width", str(WIDTH))
    for file in (job.path / "model").iterdir():
        file.unlink()
    layers = shake(Layers(lambda _x, hidden, out: {"hidden": hidden, "out": out}))
    embertide.export(layers, job.path / "model")
    job.set(keep=True)
    job.night("1x1")
    # The new neighbour, whose hidden row the last layer needs, comes before the node asked for.
    neighbour, new = job.add_nodes("", 2)
    job.add_edges("", [(4, neighbour), (9, neighbour), (neighbour, new), (17, new)])
    rows = {}
    for result in ("hidden", "out"):
        _, rows[result], _ = _rows(job.embed(new, words=(*OVER_KEPT, "--result", result)))
        whole = job.embed(new, words=("--result", result))
        (expected,) = [json.loads(line)["embedding"] for line in whole.out.splitlines()]
        assert np.allclose(rows[result][0], expected, rtol=1e-5, atol=1e-6), result


def test_a_new_node_without_edges_is_no_row_of_the_version(job: NightlyJob) -> None:
    version = job.night("1x1")["version"]
    (new,) = job.add_nodes("", 1)
    done = job.embed(new, words=OVER_KEPT)
    assert np.array_equal(_rows(done)[1], job.whole_rows()[""][[new]])
    assert "nothing has changed" not in done.err
    assert f"over 0 edges; neighbours have the rows and degrees that version {version}" in done.err


def test_newer_features_of_neighbours_are_counted(job: NightlyJob) -> None:
    job.night("1x1")
    (new,) = job.add_nodes("", 1)
    job.add_edges("", [(4, new), (900, new), (17, new)])
    job.change_features([900, 300, new])
    done = job.embed(new, words=OVER_KEPT)
    assert _rows(done)[2]["newer"] == 1
    assert "the first layer read newer features of 1 neighbours" in done.err


def test_graphs_of_several_types(tmp_path: Path) -> None:
    job = NightlyJob(tmp_path, "--scale", "10", "--hetero", "--width", "8", "--hidden", "8")
    job.set(keep=True)
    version = job.night("1x1")["version"]
    (user,), (item,) = job.add_nodes("user", 1), job.add_nodes("item", 1)
    job.add_edges("buys", [(user, item)])
    job.add_edges("follows", [(3, user), (8, user)])
    job.add_edges("similar", [(9, item)])
    done = job.embed(item, words=(*OVER_KEPT, "--node-type", "item"))
    ids, vectors, over = _rows(done)
    assert (ids, over["version"], over["new"]) == ([item], version, 1)
    # No row of another node has changed, so a run of all rows gives the same.
    assert np.array_equal(vectors[0], job.whole_rows()["item"][item])


def _no_edges(*_: object) -> None:
    raise AssertionError("edges are read")


@pytest.mark.parametrize(
    ("words", "node_type"),
    [(("--conv", "gcn", "--weights"), None), (("--hetero",), "user")],
)
def test_a_kept_graph_is_read_in_place_of_edges_that_have_not_changed(
    words: tuple[str, ...], node_type: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, asked = NightlyJob(tmp_path, "--scale", "10", *words), [5, 100, 77]
    job.night("2x1")
    job.touch_features()
    loaded = load_manifest(job.path / "job.yaml")
    with monkeypatch.context() as patch:
        patch.setattr(typed_graph, "ingest", _no_edges)
        over = embed_over_kept(loaded, asked, node_type=node_type)
    assert over.warnings == []
    job.damage_graphs(2)
    records = job.graphs()
    damaged = embed_over_kept(loaded, asked, node_type=node_type)
    assert records == job.graphs()
    assert damaged.warnings
    assert all("does not match its checksum" in warning for warning in damaged.warnings)
    for path in job.graphs():
        path.unlink()
    read = embed_over_kept(loaded, asked, node_type=node_type)
    for other in (damaged, read):
        assert np.array_equal(over.vectors, other.vectors)
        assert (over.edges, over.over) == (other.edges, other.over)


def test_features_are_read_of_nodes_that_the_first_layer_needs(
    job: NightlyJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.night("1x1")
    job.touch_features()
    read = list[int]()

    def noting(ctx: RunContext, nodes: LoadedNodes, wanted: np.ndarray) -> torch.Tensor:
        read.extend(wanted.tolist())
        return read_some_features(ctx, nodes, wanted)

    monkeypatch.setattr(embed, "read_some_features", noting)
    asked = [5, 100]
    embed_over_kept(load_manifest(job.path / "job.yaml"), asked)
    edges = pa.concat_tables(
        pq.read_table(path) for path in sorted((job.path / "edges").glob("*.parquet"))
    )
    source, destination = (column.to_numpy() for column in edges.columns)
    neighbours = source[np.isin(destination, asked)]
    assert read == sorted({*asked, *neighbours.tolist()})
    assert len(read) < 200


@pytest.mark.parametrize("layer", later([0, 1, 3], 0, 3))
def test_damaged_blocks_are_never_used(layer: int, job: NightlyJob) -> None:
    version = job.night("1x1")["version"]
    job.damage(layer)
    if layer != 3:
        job.add_nodes("", 1)
    done = job.embed(5, words=OVER_KEPT)
    assert (done.code, done.out) == (3, "")
    assert f"rows that version {version} has kept cannot be used" in done.message
    assert "does not match its checksum" in done.message
    assert "run the job to keep its rows again, or leave out --over-kept" in done.message


def test_what_cannot_be_computed_over_kept_rows(job: NightlyJob) -> None:
    assert "there is no version in" in job.embed(5, words=OVER_KEPT).message
    job.set(keep=False)
    version = job.night("1x1")["version"]
    done = job.embed(5, words=OVER_KEPT)
    assert done.code == 3
    assert f"version {version} has kept no rows; set spec.refresh.keep" in done.message
    job.set(keep=True)
    version = job.night("1x1", "--force")["version"]
    manifest = yaml.safe_load((job.path / "job.yaml").read_text())
    manifest["spec"]["inference"] = {"rows": "bfloat16"}
    (job.path / "job.yaml").write_text(yaml.safe_dump(manifest))
    done = job.embed(5, words=OVER_KEPT)
    assert done.code == 3
    assert f"version {version} was computed with rows float32, not bfloat16" in done.message


def test_another_model_is_refused_whatever_else_has_changed(job: NightlyJob) -> None:
    version = job.night("1x1")["version"]
    (weights,) = (job.path / "model").glob("*.safetensors")
    tensors = load_file(weights)
    last = max(tensors)
    save_file({**tensors, last: 2 * tensors[last]}, weights)
    job.change_edges(1)
    done = job.embed(5, words=OVER_KEPT)
    assert done.code == 3
    assert f"the model has changed since version {version}, whose rows were kept" in done.message
    job.night("1x1")
    assert job.embed(5, words=OVER_KEPT).code == 0
