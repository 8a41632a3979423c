"""Manifests that are refused: all problems at once, each with path, value and what is allowed.

Jobs and what is said of them are ``tests/expected/jobs_refused.txt``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from embertide.errors import ManifestError
from embertide.spec import load_manifest
from embertide.spec.base import normalise_uri
from tests.support.expected import Expected, inputs
from tests.support.job_cases import BASE, Case
from tests.support.manifests import EXAMPLE


def refusal(manifest: str | Path) -> list[str]:
    """The lines of the message: the heading and each problem."""
    with pytest.raises(ManifestError) as caught:
        load_manifest(manifest)
    error = caught.value
    assert error.exit_code == 2
    heading, *lines = str(error).split("\n  ")
    assert heading.endswith(f" has {len(lines)} problem{'s' * (len(lines) > 1)}:")
    assert lines == [f"{path}: {text}" if path else text for path, text in error.problems]
    return [heading, *lines]


JOBS = inputs("jobs_refused.txt")


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_refused(name: str, expected: Expected) -> None:
    job = Case.parse(name, JOBS[name]).mutate(BASE)
    # On one line, so that BASE says nothing about the lines that problems name.
    _, *problems = refusal(yaml.safe_dump(job, default_flow_style=True, width=1 << 30))
    found = "\n".join(problems)
    expected.check("jobs_refused.txt", name, f"{JOBS[name]}--\n{found}", JOBS)


_DAY = EXAMPLE.replace("{name: products}", "{name: products, labels: {day: 2026-11-20}}")
TEXTS = {
    "a list that does not end": "a: [1, 2\nb: 3\n",
    "a tab": "a: 1\n\tb: 2\n",
    "a key twice": "a: 1\na: 2\n",
    "two documents": f"{EXAMPLE}---\n{EXAMPLE}",
    "nothing": "\n",
    "a list": "- a\n- b\n",
    "no day": "a: 2026-13-45\n",
    "a call": "a: !!python/object/apply:os.system [ls]\n",
    "a list as a key": "{? [a]: b}\n",
    "a day where text is meant": _DAY,
    "a number as a key": f"{EXAMPLE}  7: x\n",
    "problems of all kinds, with their lines": (
        EXAMPLE.replace("fanout: full", "fanout: [5, 0, x]")
        .replace("seed: 0}", "seed: -1}")
        .replace("dtype: float32", "dtype: float3")
        .replace("suspend: false", "suspend: 1\n  backofLimit: 3")
        .replace("format: parquet, columns", "formt: parquet, columns")
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_is_no_manifest(name: str, expected: Expected) -> None:
    expected.check("manifest_texts.txt", name, "\n".join(refusal(TEXTS[name])), TEXTS)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    heading, problem = refusal(tmp_path / "nope.yaml")
    assert heading == f"{tmp_path}/nope.yaml has 1 problem:"
    assert problem.startswith("no such file")
    assert refusal(tmp_path)[1] == "cannot be read: Is a directory"
    (tmp_path / "bin.yaml").write_bytes(b"a: \xff\xfe")
    assert refusal(tmp_path / "bin.yaml")[1].startswith("is not text in UTF-8 (byte 3)")


@given(st.text(max_size=40))
def test_any_location_is_normalised_once_or_refused(text: str) -> None:
    try:
        uri = normalise_uri(text, Path("/base"))
    except ValueError:
        return
    assert uri.startswith(("file:///", "s3://"))
    assert normalise_uri(uri) == uri


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
