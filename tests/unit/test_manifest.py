"""The manifest: what is accepted, what defaults are, and the models themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from embertide.spec import EmbeddingJob, load_manifest
from embertide.spec.base import SpecModel, normalise_uri
from embertide.spec.manifest import EdgeInput, FeatureInput, GridShape, Inference, NodeInput
from tests.support.manifests import EXAMPLE, put
from tests.support.patience import WAIT_SECONDS

# What is accepted


def test_the_example_of_the_design_is_accepted() -> None:
    job = load_manifest(EXAMPLE)
    edge, node = job.spec.input.edges[0], job.spec.input.nodes[0]
    assert (edge.name, edge.source_type, edge.destination_type) == ("edge", "node", "node")
    assert (edge.columns.source, edge.columns.destination, edge.columns.weight) == (
        "src",
        "dst",
        None,
    )
    assert (edge.directed, edge.duplicates, edge.self_loops) == (True, "keep", "keep")
    assert (node.ids, node.features.id_column, node.features.vector_column) == ("string", "id", "x")
    assert job.spec.inference.fanout == "full"
    assert (job.spec.output.keep_versions, job.spec.output.dtype) == (7, "float32")
    assert (job.spec.workers.grid, job.spec.workers.device) == ("auto", "cuda")
    assert job.spec.active_deadline_seconds == 21600


def test_a_small_manifest_gets_the_documented_defaults(example: dict[str, Any]) -> None:
    spec = example["spec"]
    small = {
        "input": {
            "edges": [{"uri": "/data/edges", "format": "parquet"}],
            "nodes": [{"features": {"uri": "/data/x", "vectorColumn": "x"}}],
        },
        "model": spec["model"],
        "output": {"uri": "/data/out"},
    }
    job = load_manifest(yaml.safe_dump(example | {"spec": small}))
    assert job.spec.input.edges[0].uri == "file:///data/edges"
    assert job.spec.input.nodes[0].ids == "dense"
    assert job.spec.input.nodes[0].features.format == "parquet"
    assert job.spec.inference == Inference(fanout="full", seed=0, group_bytes=8 << 20, depth=2)
    assert job.spec.output.keep_versions == 7
    assert job.spec.backoff_limit == 3
    assert job.spec.progress_deadline_seconds == 900


def test_fanout_list_and_explicit_grid(example: dict[str, Any]) -> None:
    data = put(example, "spec.inference.fanout", [50, 25])
    data = put(data, "spec.workers.grid", {"graph": 4, "feature": 2})
    job = load_manifest(yaml.safe_dump(data))
    assert job.spec.inference.fanout == [50, 25]
    assert job.spec.workers.grid == GridShape(graph=4, feature=2)


def test_several_types_parse(example: dict[str, Any]) -> None:
    x = {"uri": "s3://b/x", "vectorColumn": "x"}
    nodes = [{"name": n, "features": x} for n in ("user", "item")]
    edges = [
        {"name": f"e{i}", "sourceType": a, "destinationType": b, "uri": "s3://b/e", "format": "csv"}
        for i, (a, b) in enumerate([("user", "item"), ("item", "user")])
    ]
    data = put(put(example, "spec.input.nodes", nodes), "spec.input.edges", edges)
    job = load_manifest(yaml.safe_dump(data))
    assert [e.source_type for e in job.spec.input.edges] == ["user", "item"]


def test_what_the_api_server_adds_is_no_problem(example: dict[str, Any]) -> None:
    data = put(example, "metadata.uid", "3f1c")
    data = put(data, "metadata.managedFields", [{"manager": "kubectl"}])
    data = put(data, "status", {"phase": "Complete"})
    assert load_manifest(yaml.safe_dump(data)).metadata.name == "products"


def test_json_is_accepted(example: dict[str, Any]) -> None:
    job = load_manifest(yaml.safe_dump(example))
    assert load_manifest(job.model_dump_json(by_alias=True)) == job


def test_python_names_work_in_python() -> None:
    assert NodeInput(features=FeatureInput(uri="/x", vector_column="v")).features.id_column == "id"


@pytest.mark.parametrize("extra", [{"format": "npy"}, {"format": "csv", "header": False}])
def test_columns_without_names_default_to_the_first_two(extra: dict[str, Any]) -> None:
    edge = EdgeInput.model_validate({"uri": "/e"} | extra)
    assert (edge.columns.source, edge.columns.destination) == (0, 1)
    assert not edge.named_columns
    swapped = EdgeInput.model_validate(
        {"uri": "/e", "columns": {"source": 1, "destination": 0, "weight": 2}} | extra
    )
    assert (swapped.columns.source, swapped.columns.destination, swapped.columns.weight) == (
        1,
        0,
        2,
    )


@pytest.mark.parametrize(
    ("extra", "separator"),
    [
        ({"format": "csv"}, ","),
        ({"format": "csv", "delimiter": ";"}, ";"),
        ({"format": "tsv"}, "\t"),
    ],
)
def test_separator(extra: dict[str, Any], separator: str) -> None:
    assert EdgeInput.model_validate({"uri": "/e"} | extra).separator == separator


def test_npy_features_have_no_id_column_by_default() -> None:
    rows = FeatureInput.model_validate({"uri": "/x.npy", "format": "npy"})
    assert rows.id_column is None
    assert rows.by_row_number
    named = FeatureInput.model_validate({"uri": "/x.npy", "format": "npy", "idsUri": "/i.npy"})
    assert not named.by_row_number


def test_relative_paths_start_at_the_manifests_directory(
    tmp_path: Path, example: dict[str, Any]
) -> None:
    data = put(example, "spec.input.edges.0.uri", "edges/")
    data = put(data, "spec.output.uri", "../out")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(data))
    job = load_manifest(tmp_path / "job.yaml")
    assert job.spec.input.edges[0].uri == f"file://{tmp_path}/edges/"
    assert job.spec.output.uri == f"file://{tmp_path}/../out"
    assert load_manifest(str(tmp_path / "job.yaml")) == job


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        ("file:///a/b", "file:///a/b"),
        ("/a/b/", "file:///a/b/"),
        ("rel/x", "file:///base/rel/x"),
        ("rel/", "file:///base/rel/"),
    ],
)
def test_locations_are_normalised(text: str, expected: str) -> None:
    assert normalise_uri(text, Path("/base")) == expected


# The models themselves


def models_below(model: type[BaseModel]) -> set[type[BaseModel]]:
    subclasses = model.__subclasses__()
    return set(subclasses).union(*(models_below(sub) for sub in subclasses))


def test_every_field_is_described() -> None:
    # Other tests make some of their own.
    models = {
        model for model in models_below(SpecModel) if model.__module__.startswith("embertide.")
    }
    assert EmbeddingJob in models
    for model in models:
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


def test_jobs_are_frozen() -> None:
    job = load_manifest(EXAMPLE)
    with pytest.raises(ValueError, match="frozen"):
        job.spec.inference.seed = 1  # type: ignore[misc]


def test_the_spec_imports_nothing_heavy() -> None:
    heavy = {"torch", "numpy", "pyarrow", "boto3", "kubernetes", "dgl"}
    code = f"import sys, embertide.spec; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
    )
    assert done.stdout.strip() == "[]"
