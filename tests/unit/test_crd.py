"""The custom resource definition: as committed, and as strict as the models are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from embertide.cli import main
from embertide.spec import EmbeddingJob, load_manifest
from embertide.spec.crd import crd, crd_yaml, schedule_crd
from embertide.spec.status import Condition, JobStatus, ProgressStatus
from tests.support.job_cases import ACCEPTED, BASE, FINISHED, RULES, TAKEN, Case

REASONS = {"FieldValueForbidden": "Forbidden", "FieldValueRequired": "Required value"}


def version() -> dict[str, Any]:
    (only,) = crd()["spec"]["versions"]
    return only


def root() -> dict[str, Any]:
    return version()["schema"]["openAPIV3Schema"]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema, with its dotted path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}".lstrip("."))
    if "items" in schema:
        yield from nodes(schema["items"], path + "[0]")


# The definition


def test_bounds_are_whole_numbers_within_int64() -> None:
    """API servers compare a whole number, as in ``tolerance: 0``, with the bound as an int64."""
    (schedules,) = schedule_crd()["spec"]["versions"]
    bounds = {
        f"{path}.{kind}": schema[kind]
        for definition in (root(), schedules["schema"]["openAPIV3Schema"])
        for path, schema in nodes(definition)
        for kind in ("minimum", "maximum")
        if kind in schema
    }
    assert bounds
    wrong = {
        at: bound for at, bound in bounds.items() if bound != int(bound) or abs(bound) >= 2**63
    }
    assert wrong == {}


def test_the_definition_of_schedules_has_no_spec() -> None:
    (only,) = schedule_crd()["spec"]["versions"]
    schema = only["schema"]["openAPIV3Schema"]
    assert "spec" not in schema["properties"]
    columns = {column["name"]: column["jsonPath"] for column in only["additionalPrinterColumns"]}
    fields = schema["properties"]["status"]["properties"]
    for name, path_of in columns.items():
        assert path_of.removeprefix(".status.").partition("[")[0] in fields, name


def test_the_yaml_is_the_definition() -> None:
    text = crd_yaml()
    assert yaml.safe_load(text) == crd()
    assert "&id" not in text


def test_names() -> None:
    spec = crd()["spec"]
    assert crd()["metadata"]["name"] == "embeddingjobs.embertide.dev"
    assert (spec["group"], version()["name"]) == ("embertide.dev", "v1alpha1")
    assert spec["names"]["shortNames"] == ["ej"]
    assert spec["scope"] == "Namespaced"
    assert version()["subresources"] == {"status": {}}


def test_the_schema_is_structural() -> None:
    for path, schema in nodes(root()):
        typed = (
            "type" in schema
            or schema.get("x-kubernetes-int-or-string")
            or schema.get("x-kubernetes-preserve-unknown-fields")
        )
        assert typed, path
        assert not {"$ref", "anyOf", "oneOf", "allOf", "const", "additionalProperties"} & set(
            schema
        ), path
        assert "title" not in schema, path
        if schema.get("type") == "integer":
            assert schema["format"] in ("int32", "int64"), path


def test_everything_is_described() -> None:
    for path, schema in nodes(root()):
        # The API server has its own words about metadata; items of texts need none.
        if not path.startswith("metadata") and not (
            path.endswith("[0]") and "properties" not in schema
        ):
            assert schema.get("description", "").endswith("."), path


def test_fields_that_are_a_word_or_more_say_both_forms() -> None:
    fields = dict(nodes(root()))
    for path, word in (("spec.workers.grid", "auto"), ("spec.inference.fanout", "full")):
        assert "type" not in fields[path]
        assert fields[path]["default"] == word
        assert f"Either the word {word}" in fields[path]["description"]
        assert "; or a" in fields[path]["description"]


def test_columns_show_what_the_status_has() -> None:
    fields = dict(nodes(root()))
    for column in version()["additionalPrinterColumns"]:
        path = column["jsonPath"].removeprefix(".")
        if path == "metadata.creationTimestamp":
            continue
        assert fields[path]["type"] == column["type"], path
    wide = [c["name"] for c in version()["additionalPrinterColumns"] if c.get("priority")]
    assert wide == ["Output", "Embeddings", "Pushed", "Operator", "Failure"]


def test_items_of_lists_have_no_defaults() -> None:
    """kubectl compares lists as a whole: what the API server adds would be a change each time."""
    items = {path: schema for path, schema in nodes(root()) if "[0]" in path}
    assert not [path for path, schema in items.items() if "default" in schema]
    assert items["spec.input.edges[0].sourceType"]["description"].endswith("Default: node.")
    assert items["spec.input.edges[0].directed"]["description"].endswith("Default: true.")


def test_defaults_that_depend_on_other_fields_are_left_to_the_models() -> None:
    fields = dict(nodes(root()))
    for path in (
        "spec.input.edges[0].columns.source",
        "spec.input.edges[0].columns.destination",
        "spec.input.nodes[0].features.idColumn",
    ):
        assert "default" not in fields[path]
    assert fields["spec.preRunningDeadlineSeconds"]["default"] == 1800
    assert not any("default" in s for path, s in fields.items() if path.startswith("status"))


# Both sides agree


def as_text(case: Case) -> str:
    return json.dumps(case.mutate(BASE))


@pytest.mark.parametrize("case", [*TAKEN, *ACCEPTED, *FINISHED], ids=lambda case: case.name)
def test_the_models_take_what_the_definition_takes(case: Case) -> None:
    assert isinstance(load_manifest(as_text(case)), EmbeddingJob)


def test_every_rule_has_a_case_and_every_case_is_of_a_rule() -> None:
    every = said_by_rules()
    assert [said for said in every if not any(case.rule in said for case in RULES)] == []
    assert [case for case in RULES if not any(case.rule in said for said in every)] == []


def said_by_rules() -> list[str]:
    """What the API server says about each rule."""
    return [
        f"{path}{rule.get('fieldPath', '')}: {REASONS.get(rule.get('reason'), 'Invalid value')}: "
        f"{rule['message']}"
        for path, schema in nodes(root())
        for rule in schema.get("x-kubernetes-validations", ())
    ]


def test_rules_point_at_fields_that_exist() -> None:
    fields = dict(nodes(root()))
    for path, schema in fields.items():
        for rule in schema.get("x-kubernetes-validations", ()):
            assert (path + rule.get("fieldPath", "")).lstrip(".") in fields


def test_an_empty_id_column_is_none() -> None:
    case = next(case for case in TAKEN if case.name == "rows in the order of dense ids")
    features = load_manifest(as_text(case)).spec.input.nodes[0].features
    assert features.id_column is None
    assert features.by_row_number


def test_no_field_keeps_a_null() -> None:
    """An object with one is unequal to itself in a rule, and then nothing could change any more."""
    assert not [path for path, schema in nodes(root()) if "nullable" in schema]


# The status


def test_a_status_is_read_whoever_wrote_it() -> None:
    written = {"phase": "Running", "attempt": 2, "newField": 1, "progress": {"done": "43%"}}
    status = JobStatus.model_validate(written)
    assert status.progress == ProgressStatus(done="43%")
    assert JobStatus.model_validate(status.to_object()) == status


def test_a_status_is_written_without_what_is_not_known() -> None:
    moment = "2026-11-21T04:19:22Z"
    condition = Condition(
        type="Accepted", status="True", reason="Valid", message="", last_transition_time=moment
    )
    assert JobStatus(conditions=[condition]).to_object() == {
        "attempt": 0,
        "failures": 0,
        "versions": [],
        "conditions": [
            {
                "type": "Accepted",
                "status": "True",
                "reason": "Valid",
                "message": "",
                "lastTransitionTime": moment,
            }
        ],
    }


# The command


def test_the_command_prints_the_definition(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["crd"])
    assert left.value.code == 0
    assert capsys.readouterr().out == crd_yaml()


def test_the_command_writes_the_definition(tmp_path: Path) -> None:
    path = tmp_path / "crd.yaml"
    with pytest.raises(SystemExit) as left:
        main(["crd", "--output", str(path)])
    assert left.value.code == 0
    assert path.read_text() == crd_yaml()


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["crd", "--output", str(tmp_path)])
    assert left.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "cannot be written: Is a directory" in said
