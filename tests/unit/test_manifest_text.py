"""What manifests are read from: locations, files, YAML of every kind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from embertide.errors import ManifestError
from embertide.spec import load_manifest
from embertide.spec.base import normalise_uri
from tests.support.manifests import EXAMPLE

# Locations


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must be s3://bucket/path"),
        (" /a", "without spaces around it"),
        ("gs://b/x", "gs:// is not supported, use s3://bucket/path"),
        ("s3:///x", "with a valid bucket name"),
        ("s3://bad bucket/x", "with a valid bucket name"),
        ("s3:x", "must be s3://bucket/path"),
        ("file://a/b", "a file URI has three slashes"),
        ("~/x", "'~' is not expanded"),
        ("rel/x", "a relative path; must be s3://bucket/path"),
    ],
)
def test_locations_that_are_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        normalise_uri(text)


@given(st.text(max_size=40))
def test_any_location_is_normalised_once_or_refused(text: str) -> None:
    try:
        uri = normalise_uri(text, Path("/base"))
    except ValueError:
        return
    assert uri.startswith(("file:///", "s3://"))
    assert normalise_uri(uri) == uri


# Files and YAML


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1, 2\nb: 3\n", "line 2, column 2: not valid YAML"),
        ("a: 1\n\tb: 2\n", "line 2, column 1: not valid YAML"),
        ("a: 1\na: 2\n", "line 2, column 1: not valid YAML: duplicate key 'a'; remove one of them"),
        (
            EXAMPLE + "---\n" + EXAMPLE,
            "a second document starts here; put each document into a file of its own",
        ),
        ("\n", "is empty; must be a mapping with apiVersion, kind, metadata and spec"),
        ("- a\n- b\n", "is a list; must be a mapping"),
        ("a: 2026-13-45\n", "not valid YAML: month must be in 1..12"),
        ("a: !!python/object/apply:os.system [ls]\n", "could not determine a constructor"),
        ("{? [a]: b}\n", "not valid YAML: found unhashable key"),
    ],
)
def test_yaml_that_is_no_manifest(text: str, says: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(text)
    assert says in str(caught.value)
    assert len(caught.value.problems) == 1


def test_a_date_where_text_is_meant() -> None:
    text = EXAMPLE.replace("{name: products}", "{name: products, labels: {day: 2026-11-20}}")
    with pytest.raises(ManifestError, match=r"must be text \(in quotes where YAML would read"):
        load_manifest(text)


def test_a_key_that_is_no_text() -> None:
    with pytest.raises(ManifestError, match="keys must be text; put this one in quotes"):
        load_manifest(EXAMPLE + "  7: x\n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"nope.yaml has 1 problem:\n  no such file"):
        load_manifest(tmp_path / "nope.yaml")
    with pytest.raises(ManifestError, match="cannot be read: Is a directory"):
        load_manifest(tmp_path)
    (tmp_path / "bin.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(ManifestError, match=r"is not text in UTF-8 \(byte 3\)"):
        load_manifest(str(tmp_path / "bin.yaml"))


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(EXAMPLE.replace("seed: 0", "seed: -1"))
    with pytest.raises(ManifestError) as caught:
        load_manifest(path)
    assert str(caught.value).startswith(f"{path} has 1 problem:")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["edges", "nodes", "uri", "input", "x"]), inner)
        ),
        max_leaves=12,
    )
)
def test_no_data_ends_in_anything_but_a_manifest_error(value: Any) -> None:
    data = yaml.safe_load(EXAMPLE)
    data["spec"]["input"] = value
    with pytest.raises(ManifestError, match=r"spec\.input"):
        load_manifest(yaml.safe_dump(data))
