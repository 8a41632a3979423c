"""``embertide submit`` without a cluster: what it prints, what it needs, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.manifests import EXAMPLE

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a job with a placeholder, on a machine that knows no cluster."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name in ("KUBERNETES_SERVICE_HOST", "EMBERTIDE_SUBMIT_JOB"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "job.yaml"
    path.write_text(EXAMPLE.replace("{uri: s3://shop/features/,", '{uri: "s3://shop/{date-1d}/",'))
    return str(path)


def test_a_dry_run_prints_the_job(cli: Cli, template: str) -> None:
    options = ("--at=2026-11-22T00:30", "--time-zone=Europe/Berlin", "--dry-run", "-n", "shop")
    code, out, err = cli("submit", template, *options)
    assert (code, err) == (0, "")
    job = yaml.safe_load(out)
    assert job["metadata"]["name"] == "products-20261121-2330"
    assert job["metadata"]["namespace"] == "shop"
    assert job["spec"]["input"]["nodes"][0]["features"]["uri"] == "s3://shop/2026-11-21/"
    code, out, _ = cli("submit", template, *options, "--json")
    assert json.loads(out) == job


def test_the_time_has_to_be_known(cli: Cli, template: str) -> None:
    code, out, err = cli("submit", template, "--dry-run")
    assert (code, out) == (2, "")
    words = " ".join(err.replace("│", " ").split())
    assert "the scheduled time is not known: give --at TIME, or --at now" in words


@pytest.mark.parametrize("option", ["--at=yesterday", "--time-zone=Mars", "--policy=forbid"])
def test_wrong_options(cli: Cli, template: str, option: str) -> None:
    code, _, err = cli("submit", template, "--at=now", option)
    assert code == 2
    assert option.partition("=")[2] in err


def test_no_cluster(cli: Cli, template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = cli("submit", template, "--at=now")
    assert code == 9
    assert "no Kubernetes cluster: " in err
    assert "set KUBECONFIG, or run in a pod" in err
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("EMBERTIDE_SUBMIT_JOB", "products-29")
    code, out, _ = cli("submit", template, "--json")
    assert code == 9
    assert json.loads(out)["error"] == "ClusterError"


def test_it_needs_no_library_of_the_worker(template: str) -> None:
    """It runs in the operator's image; here those libraries cannot be imported."""
    code = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'pyarrow', 'boto3', 'psutil', 'safetensors', 'kopf'):\n"
        "    sys.modules[name] = None\n"
        "from embertide.cli import main\n"
        f"main(['submit', {template!r}, '--at=now'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 9
    assert "no Kubernetes cluster" in done.stderr
