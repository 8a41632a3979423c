"""Models that need no training, compared with their published definitions in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import yaml

import embertide
from embertide.edge.check.check import check_job
from embertide.errors import EmbertideError
from embertide.kernels import drawn, native
from embertide.kernels.drawn import draw_rows, seed_of
from embertide.spec.manifest import load_manifest

pytestmark = pytest.mark.distributed

Rows = npt.NDArray[np.float64]
NODES, WIDTH, EDGES = 40, 5, 160
TEXTS = pa.array([f"n{at}" for at in range(NODES)])
NUMBERS = np.arange(NODES, dtype=np.int64)
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2, EDGES)
# The last node has no edges.
SOURCES, TARGETS = np.random.default_rng(2).integers(0, NODES - 1, (2, EDGES))
FEATURES = np.random.default_rng(3).normal(size=(NODES, WIDTH)).astype(np.float32)


def average(
    weights: Iterable[float], places: Iterable[tuple[Any, Any]], nodes: int
) -> sp.csr_array:
    """D^-1 A of a graph whose edges lead from the first of each pair to the second."""
    source, target = zip(*places, strict=True)
    a = sp.csr_array((list(weights), (target, source)), shape=(nodes, nodes))
    degrees = a.sum(axis=1)
    return sp.diags_array(1 / np.where(degrees == 0, 1, degrees)) @ a


def unit(rows: Rows) -> Rows:
    """Rows by their lengths; those of zeros stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths == 0, 1, lengths)


def fastrp(walk: sp.csr_array, first: Rows, weights: Iterable[float], own: float = 0.0) -> Rows:
    """Chen et al. 2019, algorithm 1, with rows of length one in the sum."""
    total, rows = own * unit(first), first
    for weight in weights:
        rows = walk @ rows
        total = total + weight * unit(rows)
    return total


def folder(at: Path) -> Path:
    """The inputs of all jobs."""
    numbers, weights = {"src": SOURCES, "dst": TARGETS}, {"weight": WEIGHTS}
    texts = {name: TEXTS.take(pa.array(of)) for name, of in numbers.items()}
    pq.write_table(pa.table(numbers | weights), at / "numbers.parquet")
    pq.write_table(pa.table(texts | weights), at / "texts.parquet")
    # In another order than that of their numbers.
    pq.write_table(pa.table({"id": TEXTS[::-1]}), at / "nodes.parquet")
    np.save(at / "ids.npy", NUMBERS[::-1] + 7)
    pq.write_table(pa.table({"src": SOURCES + 7, "dst": TARGETS + 7} | weights), at / "far.parquet")
    np.save(at / "x.npy", FEATURES)
    return at


def job(
    edges: str, node: Mapping[str, Any], model: Mapping[str, Any], *, weighted: bool = True
) -> dict[str, Any]:
    """A manifest, its paths relative to its folder."""
    columns = {"weight": "weight"} if weighted else {}
    return {
        "apiVersion": "embertide.dev/v1alpha1",
        "kind": "EmbeddingJob",
        "metadata": {"name": "builtin"},
        "spec": {
            "input": {
                "edges": [{"uri": edges, "format": "parquet", "columns": columns}],
                "nodes": [dict(node)],
            },
            "model": dict(model),
            "output": {"uri": "out"},
            "refresh": {"mode": "full"},
        },
    }


def rows_of(
    at: Path, manifest: Mapping[str, Any], grid: str = "1x1", **given: Any
) -> dict[Any, Any]:
    """Id -> the row that a run publishes."""
    (at / "job.yaml").write_text(yaml.safe_dump(dict(manifest)))
    embertide.run(at / "job.yaml", grid=grid)
    return read(at, **given)


def read(at: Path, **given: Any) -> dict[Any, Any]:
    """Id -> the published row."""
    ids, vectors = embertide.read(at / "out", **given).to_numpy()
    return dict(zip(ids.tolist(), vectors, strict=True))


def same(rows: Mapping[Any, Any], ids: Iterable[Any], expected: Rows) -> None:
    """The rows are those that are expected, in the order of some ids, to rounding."""
    found = np.array([rows[one] for one in ids])
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


DENSE = {"count": NODES}
STRINGS = {"ids": "string", "table": {"uri": "nodes.parquet"}}
INT64 = {"ids": "int64", "table": {"uri": "ids.npy", "format": "npy"}}


@pytest.mark.parametrize(
    ("edges", "node", "ids", "grid"),
    [
        ("numbers.parquet", DENSE, NUMBERS, "1x1"),
        ("numbers.parquet", DENSE, NUMBERS, "2x2"),
        ("texts.parquet", STRINGS, TEXTS, "1x1"),
        ("texts.parquet", STRINGS, TEXTS, "2x1"),
        ("far.parquet", INT64, NUMBERS + 7, "1x2"),
    ],
)
def test_fastrp_is_what_was_published_whatever_the_ids_and_the_grid(
    tmp_path: Path, edges: str, node: dict[str, Any], ids: Any, grid: str
) -> None:
    model = {
        "builtin": "fastrp", "dimensions": 12, "iterationWeights": [0.5, 0, 2.0],
        "selfWeight": 0.25, "normalizationStrength": -0.5, "seed": 3,
    }  # fmt: skip
    rows = rows_of(folder(tmp_path), job(edges, node, model), grid)
    walk = average(WEIGHTS, zip(SOURCES, TARGETS, strict=True), NODES)
    degrees = np.bincount(TARGETS, WEIGHTS, NODES)
    first = draw_rows(ids, 12, seed_of(3, "node")).astype(np.float64)
    first *= np.where(degrees == 0, 1, degrees)[:, None] ** -0.5
    listed = ids.to_pylist() if isinstance(ids, pa.Array) else ids.tolist()
    same(rows, listed, fastrp(walk, first, (0.5, 0, 2), 0.25))


def test_features_take_the_place_of_a_part_of_what_is_drawn(tmp_path: Path) -> None:
    at, node = folder(tmp_path), {"features": {"uri": "x.npy", "format": "npy"}}
    walk = average(np.ones(EDGES), zip(SOURCES, TARGETS, strict=True), NODES)
    for projected in (None, 0, 5, 8):
        model = {"builtin": "fastrp", "dimensions": 8}
        model |= {} if projected is None else {"featureDimensions": projected}
        rows = rows_of(at, job("numbers.parquet", node, model, weighted=False), "2x1")
        width = 4 if projected is None else projected
        own = draw_rows(np.arange(WIDTH), width, seed_of(0, ".projection")).astype(np.float64)
        parts = [unit(FEATURES.astype(np.float64) @ own)] if width else []
        parts += [draw_rows(NUMBERS, 8 - width, seed_of(0, "node")).astype(np.float64)]
        same(rows, NUMBERS, fastrp(walk, np.hstack(parts), (0, 1, 1)))


def typed(model: Mapping[str, Any], *, reverse: bool = True) -> dict[str, Any]:
    """Users who buy items, and items that are alike."""
    made = job("numbers.parquet", {}, model)
    bought = {"name": "buys", "sourceType": "user", "destinationType": "item"}
    bought |= {"reverse": "bought_by"} if reverse else {}
    alike = {"name": "alike", "sourceType": "item", "destinationType": "item"}
    (edge,) = made["spec"]["input"]["edges"]
    made["spec"]["input"] = {
        "edges": [edge | bought, edge | alike],
        "nodes": [{"name": "user"} | DENSE, {"name": "item"} | DENSE],
    }
    return made


@pytest.mark.parametrize("grid", ["1x1", "2x2"])
def test_a_graph_of_several_types_is_one_graph(tmp_path: Path, grid: str) -> None:
    at, model = folder(tmp_path), {"builtin": "fastrp", "dimensions": 8}
    places = [(s, NODES + t) for s, t in zip(SOURCES, TARGETS, strict=True)]
    places += [(t, s) for s, t in places]
    places += [(NODES + s, NODES + t) for s, t in zip(SOURCES, TARGETS, strict=True)]
    walk = average(np.tile(WEIGHTS, 3), places, 2 * NODES)
    first = [draw_rows(NUMBERS, 8, seed_of(0, name)) for name in ("user", "item")]
    expected = fastrp(walk, np.vstack(first).astype(np.float64), (0, 1, 1))
    rows = rows_of(at, typed(model), grid, node_type="user")
    same(rows, NUMBERS, expected[:NODES])
    same(read(at, node_type="item"), NUMBERS, expected[NODES:])


def test_a_type_without_edges_into_it_has_its_own_vectors(tmp_path: Path) -> None:
    model = {"builtin": "fastrp", "dimensions": 8, "selfWeight": 0.5}
    rows = rows_of(folder(tmp_path), typed(model, reverse=False), node_type="user")
    same(rows, NUMBERS, 0.5 * unit(draw_rows(NUMBERS, 8, seed_of(0, "user")).astype(np.float64)))


def propagated(model: str) -> Rows:
    """SGC, SIGN and APPNP of the features, two hops."""
    a, loops = np.zeros((NODES, NODES)), np.zeros(NODES)
    for source, target, weight in zip(SOURCES, TARGETS, WEIGHTS, strict=True):
        if source == target:  # PyG's gcn_norm: of several the heaviest counts
            loops[target] = max(loops[target], weight)
        else:
            a[target, source] += weight
    np.fill_diagonal(a, np.where(loops == 0, 1, loops))
    scale = a.sum(axis=1) ** -0.5
    s, x = scale[:, None] * a * scale, FEATURES.astype(np.float64)
    if model == "sign":
        return np.hstack([x, s @ x, s @ s @ x])
    teleport = 0.2 if model == "appnp" else 0.0
    rows = x
    for _ in range(2):
        rows = (1 - teleport) * (s @ rows) + teleport * x
    return rows


@pytest.mark.parametrize("model", ["sgc", "sign", "appnp"])
def test_features_are_propagated(tmp_path: Path, model: str) -> None:
    node = {"features": {"uri": "x.npy", "format": "npy"}}
    ref = {"builtin": model} | ({"teleport": 0.2} if model == "appnp" else {})
    rows = rows_of(folder(tmp_path), job("numbers.parquet", node, ref), "2x1")
    same(rows, NUMBERS, propagated(model))


def test_a_node_keeps_what_it_begins_with_when_others_come(tmp_path: Path) -> None:
    at, model = folder(tmp_path), {"builtin": "fastrp", "dimensions": 8, "selfWeight": 1}
    model["iterationWeights"] = [1]
    manifest = job("texts.parquet", STRINGS, model)
    manifest["spec"]["refresh"] = {"mode": "auto"}
    before = rows_of(at, manifest)
    assert embertide.run(at / "job.yaml", grid="1x1").confirmed, "nothing has changed"
    pq.write_table(
        pa.table({"id": pa.concat_arrays([pa.array(["a", "z"]), TEXTS])}), at / "nodes.parquet"
    )
    after = rows_of(at, manifest)
    assert after.keys() - before.keys() == {"a", "z"}
    for name, row in before.items():
        assert np.array_equal(after[name], row), name


def test_a_refresh_computes_what_a_full_run_computes(tmp_path: Path) -> None:
    at, model = folder(tmp_path), {"builtin": "fastrp", "dimensions": 8}
    manifest = job("numbers.parquet", DENSE, model)
    manifest["spec"]["refresh"] = {"mode": "incremental", "keep": True}
    before = rows_of(at, manifest)
    edges = pq.read_table(at / "numbers.parquet")
    pq.write_table(edges.slice(1), at / "numbers.parquet")
    (at / "job.yaml").write_text(yaml.safe_dump(manifest))
    report = embertide.run(at / "job.yaml", grid="1x1")
    assert report.refresh.base, "it goes on from the version before"
    refreshed = read(at)
    manifest["spec"]["refresh"] = {"mode": "full"}
    full = rows_of(at, manifest)
    assert any(not np.array_equal(before[one], full[one]) for one in full)
    same(refreshed, NUMBERS, np.array([full[one] for one in NUMBERS]))


def test_a_check_finds_edges_that_are_read_the_wrong_way_round(tmp_path: Path) -> None:
    at, model = folder(tmp_path), {"builtin": "fastrp", "dimensions": 8, "selfWeight": 1}
    manifest = job("numbers.parquet", DENSE, model)
    walk = average(WEIGHTS, zip(TARGETS, SOURCES, strict=True), NODES)
    first = draw_rows(NUMBERS, 8, seed_of(0, "node")).astype(np.float64)
    turned = fastrp(walk, first, (0, 1, 1), 1).astype(np.float32)
    pq.write_table(pa.table({"id": NUMBERS, "embedding": list(turned)}), at / "ref.parquet")
    (at / "job.yaml").write_text(yaml.safe_dump(manifest))
    checked = check_job(load_manifest(at / "job.yaml"), against=(at / "ref.parquet").as_uri())
    assert not checked.agrees
    assert checked.difference.fixes, checked.difference


def no_features(spec: dict[str, Any]) -> None:
    spec["model"] = {"builtin": "sign"}


def no_way_in(spec: dict[str, Any]) -> None:
    spec["input"] = typed({}, reverse=False)["spec"]["input"]


def no_weights(spec: dict[str, Any]) -> None:
    spec["model"]["iterationWeights"] = [0, 0]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_features, "builtin sign averages features, but spec.input.nodes[0] has none; give it"),
        (no_way_in, "no edge type leads to node type 'user', so that builtin fastrp gives its"),
        (no_weights, "iterationWeights are all 0, so that no edge counts; give one other"),
    ],
)
def test_what_gives_nothing_is_refused(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], None], message: str
) -> None:
    manifest = copy.deepcopy(job("numbers.parquet", DENSE, {"builtin": "fastrp"}))
    spoil(manifest["spec"])
    (folder(tmp_path) / "job.yaml").write_text(yaml.safe_dump(manifest))
    with pytest.raises(EmbertideError) as refused:
        embertide.plan(tmp_path / "job.yaml")
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("ids", [NUMBERS - 3, TEXTS, NUMBERS[:0]], ids=["int64", "string", "none"])
@pytest.mark.parametrize("columns", [1, 6, 7])
def test_native_rows_are_those_of_numpy(
    monkeypatch: pytest.MonkeyPatch, ids: Any, columns: int
) -> None:
    rows = draw_rows(ids, columns, 5)
    monkeypatch.setattr(native, "lib", None)
    monkeypatch.setattr(drawn, "_ROWS", 16)
    assert np.array_equal(draw_rows(ids, columns, 5), rows)
    size = np.float32(np.sqrt(3 / columns))
    assert set(np.unique(rows)) <= {-size, np.float32(0), size}


def test_a_third_of_what_is_drawn_is_not_zero_and_rows_have_length_one() -> None:
    rows = draw_rows(np.arange(20_000), 64, 0)
    assert abs((rows > 0).mean() - 1 / 6) < 2e-3
    assert abs((rows < 0).mean() - 1 / 6) < 2e-3
    assert abs((rows**2).sum(axis=1).mean() - 1) < 5e-3
    other = draw_rows(np.arange(20_000), 64, 1)
    # Neither columns nor seeds nor neighbours have anything to do with each other.
    for a, b in ((rows[:, 0], rows[:, 1]), (rows, other), (rows[1:], rows[:-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.02
