"""Made-up jobs: reproducible, the right shape, and readable by the readers."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embertide.edge.synth import SynthOptions, job, synthesize, write
from embertide.edge.synth.graphs import Choice, edge_maker, scramble
from embertide.edge.synth.tables import plan_files
from embertide.errors import ManifestError, OutputError
from embertide.io.readers.edges import read_edges, split_edges
from embertide.io.readers.feature_schema import feature_schema
from embertide.io.readers.features import non_finite, read_features, split_features
from embertide.io.storage.protocol import Storage
from embertide.spec import load_manifest
from embertide.spec.manifest import EdgeInput, NodeInput


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Uris of models asked for: the writer of models has its own tests (and needs torch)."""
    asked: list[str] = []

    def ask(storage: Storage, uri: str, options: SynthOptions) -> None:
        asked.append(uri)

    monkeypatch.setattr(job, "_write_model", ask)
    return asked


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "CHUNK_EDGES", 100)
    monkeypatch.setattr(write, "_FEATURE_CHUNK_BYTES", 16 * 4)
    monkeypatch.setattr(write, "_FEATURE_FILE_BYTES", 64 * 4)


def contents(storage: Storage, uri: str) -> tuple[list[Any], list[Any], list[list[float]]]:
    """Edges, feature ids and features of a made-up job, through its manifest."""
    spec = load_manifest(storage.read(f"{uri}/job.yaml").decode()).spec
    edges, node = spec.input.edges[0], spec.input.nodes[0]
    found: list[Any] = []
    kinds = (node.ids, node.ids)
    for split in split_edges(storage, edges, ids=kinds):
        for batch in read_edges(storage, edges, kinds, split, counts=(node.count, node.count)):
            columns = [batch.source.tolist(), batch.destination.tolist()]
            columns += [] if batch.weight is None else [batch.weight.tolist()]
            found += zip(*columns, strict=True)
    ids: list[Any] = []
    values: list[list[float]] = []
    schema = feature_schema(storage, node.features)
    for split in split_features(storage, node.features, ids=node.ids):
        for rows in read_features(storage, node.features, node.ids, split, schema):
            assert non_finite(rows) == (0, None)
            ids += rows.ids.tolist()
            values += rows.values.tolist()
    return found, ids, values


FORMATS = [
    (edges, features, ids)
    for edges in ("parquet", "csv", "npy")
    for features in ("parquet", "npy")
    for ids in ("dense", "int64", "string")
    if (edges, ids) != ("npy", "string")
]


@pytest.mark.parametrize(("edge_format", "feature_format", "ids"), FORMATS)
@pytest.mark.usefixtures("small_chunks")
def test_every_format_holds_the_same_graph(
    tmp_path: Path, storage: Storage, edge_format: Any, feature_format: Any, ids: Any
) -> None:
    plain = SynthOptions(nodes=77, edges=1234, width=4)
    synthesize(storage, f"file://{tmp_path}/plain", plain)
    other = SynthOptions(
        nodes=77,
        edges=1234,
        width=4,
        edge_format=edge_format,
        feature_format=feature_format,
        ids=ids,
        rows_per_group=33,
        rows_per_file=500,
    )
    report = synthesize(storage, f"file://{tmp_path}/other", other)
    edges, nodes, values = contents(storage, f"file://{tmp_path}/plain")
    found, found_ids, found_values = contents(storage, f"file://{tmp_path}/other")
    names = dict(zip(nodes, found_ids, strict=True))
    assert len(set(found_ids)) == 77
    assert [(names[s], names[d]) for s, d in edges] == found
    assert values == found_values
    assert report.size == sum(
        path.stat().st_size
        for folder in ("edges", "features", "feature-ids")
        for path in (tmp_path / "other" / folder).glob("*")
    )
    assert report.objects > 4


@pytest.mark.parametrize("edge_format", ["parquet", "csv", "npy"])
def test_weights(tmp_path: Path, storage: Storage, edge_format: Any) -> None:
    # Floats hold ids only up to 2^53, so npy has dense ids here.
    options = SynthOptions(nodes=50, edges=300, width=2, weights=True, edge_format=edge_format)
    synthesize(storage, f"file://{tmp_path}", options)
    edges, _, _ = contents(storage, f"file://{tmp_path}")
    weights = [weight for _, _, weight in edges]
    assert all(0 < weight <= 1 for weight in weights)
    assert 0.4 < sum(weights) / 300 < 0.6


@pytest.mark.parametrize("edge_format", ["parquet", "csv", "npy"])
def test_features_of_edges(tmp_path: Path, storage: Storage, edge_format: Any) -> None:
    shape: dict[str, Any] = {"nodes": 50, "edges": 300, "width": 4, "edge_format": edge_format}
    found: list[np.ndarray] = []
    for weights in (False, True):
        out = f"file://{tmp_path}/{weights}"
        synthesize(storage, out, SynthOptions(**shape, weights=weights, edge_features=3))
        edges = load_manifest(storage.read(f"{out}/job.yaml").decode()).spec.input.edges[0]
        kinds: Any = ("dense", "dense")
        for split in split_edges(storage, edges, ids=kinds):
            batches = list(read_edges(storage, edges, kinds, split))
            found.append(np.concatenate([batch.features for batch in batches]))
            assert all((batch.weight is not None) == weights for batch in batches)
    assert found[0].shape == (300, 3)
    assert np.array_equal(*found)
    assert np.abs(found[0].mean(0)).max() < 0.3


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path: Path, storage: Storage) -> None:
    def files(seed: int, name: str) -> dict[str, bytes]:
        options = SynthOptions(nodes=64, edges=500, width=3, seed=seed)
        synthesize(storage, f"file://{tmp_path}/{name}", options)
        found = (tmp_path / name).rglob("*.parquet")
        return {str(path.relative_to(tmp_path / name)): path.read_bytes() for path in found}

    first = files(1, "a")
    assert len(first) == 2
    assert files(1, "b") == first
    other = files(2, "c")
    assert all(other[name] != first[name] for name in first)


def test_job_comes_last_and_progress_counts_all_rows(
    tmp_path: Path, storage: Storage, models: list[str], small_chunks: None
) -> None:
    seen: list[tuple[str, int, int]] = []

    def progress(what: str, done: int, total: int) -> None:
        assert not (tmp_path / "job.yaml").exists()
        seen.append((what, done, total))

    options = SynthOptions(nodes=40, edges=250, width=4, name="mine")
    report = synthesize(storage, f"file://{tmp_path}", options, progress)
    assert [entry for entry in seen if entry[0] == "edges"] == [
        ("edges", 100, 250),
        ("edges", 200, 250),
        ("edges", 250, 250),
    ]
    assert seen[-1] == ("features", 40, 40)
    assert models == [report.model_uri]
    made = load_manifest(storage.read(report.job_uri).decode())
    assert made.metadata.name == "mine"
    assert made.spec.model.uri == report.model_uri
    assert made.spec.output.uri == report.output_uri
    assert made.spec.input.nodes[0].count == 40


def test_a_used_place_is_refused(tmp_path: Path, storage: Storage) -> None:
    options = SynthOptions(nodes=4, edges=5, width=1)
    synthesize(storage, f"file://{tmp_path}", options)
    with pytest.raises(OutputError, match=r"edges/ holds 1 objects already; delete them or choose"):
        synthesize(storage, f"file://{tmp_path}", options)


def test_wrong_options_are_all_named() -> None:
    with pytest.raises(ManifestError) as caught:
        SynthOptions(nodes=0, edges=-1, width=0, a=0.9, seed=-1, ids="string", edge_format="npy")
    message = str(caught.value)
    for line in (
        "synth options has 6 problems:",
        "nodes: is 0; must be from 1 to 2147483648",
        "edges: is -1; must be 0 or more",
        "width: is 0; must be at least 1",
        "seed: is -1; must be 0 or more",
        "a, b, c, d: is (0.9, 0.19, 0.19, 0.05); must be 0 or more and add up to 1",
        "edge_format: is npy; holds numbers; string ids need parquet or csv",
    ):
        assert line in message


@given(st.integers(0, 12), st.integers(0, 2**32))
@settings(deadline=None)
def test_scrambling_is_a_bijection(bits: int, seed: int) -> None:
    mixed = scramble(np.arange(1 << bits), bits, seed)
    assert sorted(mixed.tolist()) == list(range(1 << bits))


@given(st.integers(1, 2000), st.sampled_from(["rmat", "uniform"]), st.booleans())
@settings(deadline=None)
def test_every_end_is_a_node(nodes: int, kind: Any, permute: bool) -> None:
    make = edge_maker(SynthOptions(kind=kind, nodes=nodes, permute=permute))
    for ends in make(3, 500):
        assert ends.dtype == np.int64
        assert len(ends) == 500
        assert ends.min() >= 0
        assert ends.max() < nodes


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_choices_have_the_asked_probabilities(levels: int) -> None:
    quadrants = np.array([[0.57, 0.19], [0.19, 0.05]])
    choice = Choice.of(quadrants, levels)
    slots = 4**levels
    # The exact probability of each outcome, from the table itself.
    exact = np.zeros(slots)
    kept = choice.keep / (2**32 / slots)
    np.add.at(exact, np.arange(slots), kept / slots)
    np.add.at(exact, choice.alias, (1 - kept) / slots)
    for outcome in range(slots):
        wanted = 1.0
        for level in range(levels):
            row = outcome >> (levels + level) & 1
            column = outcome >> level & 1
            wanted *= quadrants[row, column]
        assert exact[outcome] == pytest.approx(wanted, abs=1e-8)
    drawn = choice.draw(np.random.default_rng(0), 200_000)
    counts = np.bincount(drawn, minlength=slots) / 200_000
    assert np.abs(counts - exact).max() < 0.01


def test_rmat_levels_follow_the_quadrants() -> None:
    make = edge_maker(SynthOptions(nodes=1 << 10, permute=False))
    source, destination = make(0, 200_000)
    for level in range(10):
        pairs = 2 * (source >> level & 1) + (destination >> level & 1)
        shares = np.bincount(pairs, minlength=4) / 200_000
        np.testing.assert_allclose(shares, [0.57, 0.19, 0.19, 0.05], atol=0.01)


def test_scrambled_labels_keep_the_degrees() -> None:
    def degrees(permute: bool) -> np.ndarray[Any, Any]:
        make = edge_maker(SynthOptions(nodes=1 << 8, permute=permute))
        return np.bincount(make(0, 10_000)[0], minlength=1 << 8)

    raw, scrambled = degrees(False), degrees(True)
    assert sorted(raw) == sorted(scrambled)
    assert raw.argmax() == 0
    assert (raw != scrambled).any()


def test_chunks_are_independent() -> None:
    make = edge_maker(SynthOptions(nodes=1000))
    third = make(3, 100)
    for chunk in (0, 1):
        assert not np.array_equal(make(chunk, 100)[0], third[0])
    np.testing.assert_array_equal(make(3, 100)[0], third[0])


@given(st.integers(0, 500), st.integers(1, 90), st.integers(1, 90), st.integers(1, 300))
def test_files_hold_every_row_once(rows: int, chunk: int, group: int, per_file: int) -> None:
    files = plan_files(rows, chunk, group, per_file)
    found = [part[0] * chunk + row for part in chain(*files) for row in range(part[1], part[2])]
    assert found == list(range(rows))
    sizes = [sum(stop - start for _, start, stop in parts) for parts in files]
    assert all(per_file <= size < per_file + group for size in sizes[:-1])


class TestHetero:
    """Three node types and six relations."""

    LISTS: ClassVar = {
        "buys": ("user", "item"), "follows": ("user", "user"),
        "similar": ("item", "item"), "has": ("item", "tag"),
    }  # fmt: skip

    @pytest.mark.parametrize(
        ("edge_format", "feature_format", "ids"),
        [("parquet", "parquet", "dense"), ("npy", "npy", "int64"), ("csv", "npy", "string")],
    )
    def test_every_format_can_be_read(
        self, tmp_path: Path, storage: Storage, edge_format: Any, feature_format: Any, ids: Any
    ) -> None:
        options = SynthOptions(
            hetero=True, conv="sage", nodes=200, edges=1003, width=3,
            edge_format=edge_format, feature_format=feature_format, ids=ids,
        )  # fmt: skip
        report = synthesize(storage, f"file://{tmp_path}", options)
        assert (report.nodes, report.edges) == (200, 1003)
        spec = load_manifest(storage.read(f"file://{tmp_path}/job.yaml").decode()).spec
        known = {node.name: set(self.ids_of(storage, node)) for node in spec.input.nodes}
        assert {name: len(found) for name, found in known.items()} == {
            "user": 122, "item": 75, "tag": 3,
        }  # fmt: skip
        sizes = {}
        for edges in spec.input.edges:
            assert (edges.source_type, edges.destination_type) == self.LISTS[edges.name]
            pairs = self.pairs_of(storage, edges, (ids, ids))
            assert {source for source, _ in pairs} <= known[edges.source_type]
            assert {destination for _, destination in pairs} <= known[edges.destination_type]
            sizes[edges.name] = len(pairs)
        assert sizes == {"buys": 377, "follows": 250, "similar": 188, "has": 188}
        assert len(spec.input.relations) == 6

    def ids_of(self, storage: Storage, node: NodeInput) -> list[Any]:
        if node.features is None:
            if node.table is None:
                return list(range(node.count or 0))
            folder = Path(node.table.uri.removeprefix("file://"))
            return [
                one for path in folder.iterdir() for one in pq.read_table(path)["id"].to_pylist()
            ]
        schema = feature_schema(storage, node.features)
        return [
            one
            for split in split_features(storage, node.features, ids=node.ids)
            for rows in read_features(storage, node.features, node.ids, split, schema)
            for one in rows.ids.tolist()
        ]

    def pairs_of(self, storage: Storage, edges: EdgeInput, kinds: Any) -> list[tuple[Any, Any]]:
        return [
            pair
            for split in split_edges(storage, edges, ids=kinds)
            for batch in read_edges(storage, edges, kinds, split, counts=(1000, 1000))
            for pair in zip(batch.source.tolist(), batch.destination.tolist(), strict=True)
        ]

    def test_no_two_lists_are_alike(self, tmp_path: Path, storage: Storage) -> None:
        options = SynthOptions(hetero=True, conv="sage", nodes=64, edges=640, width=2)
        for name in ("one", "same"):
            synthesize(storage, f"file://{tmp_path}/{name}", options)
        found = {path.relative_to(tmp_path / "one"): path.read_bytes()
                 for path in (tmp_path / "one").rglob("*.parquet")}  # fmt: skip
        assert len(set(found.values())) == len(found) == 6
        assert all((tmp_path / "same" / path).read_bytes() == data for path, data in found.items())

    def test_hubs_are_there(self) -> None:
        sources, destinations = edge_maker(SynthOptions(nodes=512), 40)(0, 20_000)
        assert (sources.max(), destinations.max()) == (511, 39)
        for ends in (sources, destinations):
            degrees = np.bincount(ends)
            assert degrees.max() > 3 * degrees.mean()

    @pytest.mark.parametrize(
        ("more", "says"),
        [
            ({"conv": "gcn"}, "conv: is gcn; must be sage with hetero"),
            ({"nodes": 2}, "nodes: is 2; must be at least 3 with hetero"),
        ],
    )
    def test_refusals(self, more: dict[str, Any], says: str) -> None:
        with pytest.raises(ManifestError, match=says):
            SynthOptions(**({"hetero": True, "conv": "sage"} | more))
