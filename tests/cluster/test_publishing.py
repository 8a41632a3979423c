"""What the publishing workflow does, against a registry on this machine: labels, push, pull."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.cluster.images import BASE_IMAGE, locked_store, make_base
from tests.support.go_programs import program
from tests.support.paths import ROOT
from tests.support.publishing import registry

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.needs("publishing"),
    pytest.mark.usefixtures("cluster_can_run"),
]

SOURCE = "https://git.example/embertide"
CHART = ROOT / "charts" / "embertide"


def say(*command: str | Path, errors: bool = False) -> str:
    """Standard output, with ``errors`` both: the registry may have things to say there."""
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"SOURCE": SOURCE}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout + ended.stderr * errors


@pytest.fixture
def host() -> Iterator[str]:
    with registry() as found:
        yield found


@pytest.mark.tier(3)
def test_a_pushed_image_says_what_it_was_built_from(host: str) -> None:
    lines = say(ROOT / "docker" / "build-arguments", "operator").splitlines()
    arguments = dict(line.split("=", 1) for line in lines) | {"BASE": BASE_IMAGE}
    image = f"{host}/operator:{arguments['VERSION']}"
    with locked_store() as buildah:
        make_base(buildah)
        dockerfile = ROOT / "docker" / "operator.Dockerfile"
        built = buildah.build(dockerfile, ROOT, arguments, cached=False)
        quick = ("--compression-format=gzip", "--compression-level=1")
        buildah.run("push", "--tls-verify=false", *quick, built, f"docker://{image}")
    config = json.loads(say(program("crane"), "config", image))["config"]
    labels = {name.rpartition("image.")[2]: text for name, text in config["Labels"].items()}
    assert labels["source"] == SOURCE
    assert labels["base.name"] == BASE_IMAGE
    for name in ("revision", "version", "created"):
        assert labels[name] == arguments[name.upper()]
    assert config["User"] == "65532:65532"


def test_a_pushed_chart_can_be_pulled_by_digest(host: str, tmp_path: Path) -> None:
    helm = program("helm")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    say(helm, "package", CHART, "--destination", tmp_path)
    archive = tmp_path / f"embertide-{version}.tgz"
    said = say(helm, "push", "--plain-http", archive, f"oci://{host}/charts", errors=True)
    digest = re.search(r"^Digest: (sha256:[0-9a-f]{64})$", said, re.MULTILINE)
    assert digest is not None, said
    place = f"oci://{host}/charts/embertide@{digest[1]}"
    shown = say(helm, "show", "values", "--plain-http", place)
    assert yaml.safe_load(shown[shown.index("\n#") :]) == yaml.safe_load(
        (CHART / "values.yaml").read_text()
    )
