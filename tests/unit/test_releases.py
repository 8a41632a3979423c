"""A worker image of another release than the operator's: it runs the job, or says why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import embertide
from embertide.errors import ManifestError
from embertide.pod.settings import ContainerFiles, read_settings
from embertide.spec import naming
from embertide.spec.manifest import load_manifest
from tests.support.manifests import EXAMPLE, put

DATA: dict[str, Any] = yaml.safe_load(EXAMPLE)
OURS = embertide.__version__
NEWER = "99.1.0"


def files(folder: Path, job: dict[str, Any], operator: str | None) -> ContainerFiles:
    (folder / naming.JOB_KEY).write_text(json.dumps(job))
    env = {"EMBERTIDE_JOB_FOLDER": str(folder)}
    return ContainerFiles.of(
        env if operator is None else env | {naming.ENV_OPERATOR_VERSION: operator}
    )


@pytest.mark.parametrize("operator", [NEWER, "0.0.1", None])
def test_what_the_user_said_is_enough(tmp_path: Path, operator: str | None) -> None:
    """A newer operator leaves out what nobody set, an older one knows less: defaults take over."""
    spec = {key: DATA["spec"][key] for key in ("input", "model", "output")}
    job = files(tmp_path, {**DATA, "spec": spec}, operator).read_job()
    assert job == load_manifest(yaml.safe_dump({**DATA, "spec": spec}))


def test_a_field_of_a_newer_operator_is_refused_with_both_releases(tmp_path: Path) -> None:
    job = put(DATA, "spec.inference.precision", "bf16")
    with pytest.raises(ManifestError) as caught:
        files(tmp_path, job, NEWER).read_job()
    assert caught.value.problems[0][0] == "spec.inference.precision"
    text = str(caught.value)
    assert f"by the operator of release {NEWER}" in text
    assert f"a worker image of release {OURS}: use an image of the operator's release" in text


def test_an_operator_may_say_no_release(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="by an operator that says no release, read by"):
        files(tmp_path, put(DATA, "spec.workers.spares", 1), None).read_job()


def test_of_one_release_the_field_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        files(tmp_path, put(DATA, "spec.workers.spares", 1), OURS).read_job()
    assert "worker image" not in str(caught.value)
    assert len(caught.value.problems) == 1


def test_a_variable_that_an_older_operator_does_not_set() -> None:
    with pytest.raises(ManifestError) as caught:
        read_settings({naming.ENV_OPERATOR_VERSION: NEWER})
    assert f"{naming.ENV_VERSION}: must be one version's name" in str(caught.value)
    assert f"release {NEWER}" in str(caught.value)
