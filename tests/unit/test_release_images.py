"""A release's images and chart: the workflow's steps as they are run here, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.go_programs import program
from tests.support.paths import ROOT
from tests.support.publishing import registry
from tools.release import Wrong, images, run

pytestmark = pytest.mark.needs("helm", "publishing")

ARGUMENTS = {
    "BASE": "registry.example/base@sha256:1", "SOURCE": "https://git.example/embertide",
    "REVISION": "4e1f", "VERSION": "0.1.0", "CREATED": "2026-11-28T12:00:00+00:00",
}  # fmt: skip
POD = images.TRIALS["worker"].entrypoint


def test_the_images_are_those_of_the_workflow() -> None:
    built = {}
    values = {"env.REGISTRY": "r.example"}
    values |= {"steps.arguments.outputs.version": "0.1.0", "steps.arguments.outputs.all": "BASE=b"}
    values["steps.build.outputs.digest"] = "sha256:2"
    for row, step in images.builds():
        given = {name: images.fill(str(text), values | row) for name, text in step["with"].items()}
        assert Path(given["file"]).stem in images.TRIALS
        assert (ROOT / given["file"]).exists()
        built[given["tags"].removesuffix(f"-{images.PROCESSOR}")] = given["build-args"].splitlines()
    worker = "r.example/worker:0.1.0"
    assert built == {
        "r.example/operator:0.1.0": ["BASE=b"],
        f"{worker}-cpu": ["BASE=b"],
        f"{worker}-push": [
            "BASE=b",
            "WORKER=r.example/worker@sha256:2",
            "INDEXES=pgvector qdrant milvus lancedb",
        ],
        f"{worker}-cuda": ["BASE=b"],
    }
    with pytest.raises(Wrong, match=r"there is no value here for 'github\.actor' in 'x"):
        images.fill("x${{ github.actor }}", values)


def make_config(**changed: Any) -> dict[str, Any]:
    """What a registry has of an image of a worker."""
    labels = {f"org.opencontainers.image.{k}": ARGUMENTS[v] for k, v in images.LABELS.items()}
    config = {"User": images.USER, "Entrypoint": POD.split(), "Labels": labels}
    return {"architecture": images.PROCESSOR, "config": config | changed}


def test_an_image_that_states_what_it_is_not_is_refused() -> None:
    def check(config: dict[str, Any]) -> None:
        images.check_config("image worker:0.1.0", config, ARGUMENTS, POD)

    check(make_config())
    labels = make_config()["config"]["Labels"]
    old = {"Labels": labels | {"org.opencontainers.image.revision": "00"}}
    for changed, words in [
        (old, r"image worker:0\.1\.0: the label revision is '00', must be '4e1f'"),
        ({"Labels": None}, "the label source is None, must be 'https://git.example/embertide'"),
        ({"User": "0"}, "the user is '0', must be '65532:65532'"),
        (
            {"Entrypoint": None},
            r"the entrypoint is None, must be \['python', '-m', 'embertide.pod'",
        ),
    ]:
        with pytest.raises(Wrong, match=words):
            check(make_config(**changed))
    with pytest.raises(Wrong, match="the architecture is 'sparc', must be"):
        check(make_config() | {"architecture": "sparc"})


def test_a_trial_that_says_something_else_is_refused() -> None:
    trial = images.TRIALS["operator"]
    said = f"65532\n65532\n{trial.words[0]}\nembertide 0.1.0"
    images.check_words("operator@sha256:1", said, trial, "0.1.0")
    for text, words in {
        said.replace("65532", "0"): "did not say '65532\n65532' but:\n0\n0\nembertide-operator",
        said.replace(
            "No configuration", ""
        ): "did not say 'embertide-operator: Invalid kube-config",
        said.replace("0.1.0", "0.1.0.dev1"): r"did not say 'embertide 0\.1\.0' but",
    }.items():
        with pytest.raises(Wrong, match=words):
            images.check_words("operator@sha256:1", text, trial, "0.1.0")


@pytest.fixture
def host() -> Iterator[str]:
    with registry() as found:
        yield found


def test_a_pushed_chart_is_pulled_by_digest(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helm = program("helm")
    run(helm, "package", ROOT / "charts" / "embertide", "--destination", tmp_path)
    (archive,) = tmp_path.glob("*.tgz")
    images.check_chart(host, archive, tmp_path / "pulled")
    script = tmp_path / "helm"
    script.write_text(f'#!/bin/sh\n[ "$1" = push ] || echo >> {archive}\nexec {helm} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(images, "program", lambda _: script)
    with pytest.raises(Wrong, match="is another one when it is pulled"):
        images.check_chart(host, archive, tmp_path / "again")
