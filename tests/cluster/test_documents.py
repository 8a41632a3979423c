"""The documents' ``sh`` blocks, as an operator of a cluster would run them, from top to bottom.

Names of images and keys are those of the test cluster; all else stands in the documents.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.decide.validate import read_job
from embertide_operator.pods.children import children
from embertide_operator.pods.worker_pods import Attempt
from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.installation import RELEASE, install
from tests.support.cluster.jobs import Inputs, workers
from tests.support.document_blocks import (
    WITHOUT_CLUSTER,
    Block,
    blocks,
    chart_values,
    documents,
    job_parts,
)
from tests.support.operator_world import SETTINGS, UID, raw_job
from tests.support.paths import ROOT

pytestmark = pytest.mark.cluster

SPACES = ("documents-readme", "documents-storage", "search")


class Terminal:
    """A shell in a folder with the chart, a job and the values that the documents speak of."""

    def __init__(self, cluster: KubernetesCluster, folder: Path, job: dict[str, Any]) -> None:
        self._cluster, self._folder = cluster, folder
        (folder / "charts").symlink_to(ROOT / "charts")
        (folder / "docker").symlink_to(ROOT / "docker")
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        (folder / "kubeconfig").write_bytes(cluster.kubeconfig.read_bytes())
        values = next(v for block, v in chart_values() if block.document == "docs/install.md")
        repository, tag = cluster.operator_image.rsplit(":", 1)
        values["image"] |= {"repository": repository, "tag": tag}
        values["worker"] |= {"image": cluster.worker_image}
        (folder / "values.yaml").write_text(yaml.safe_dump(values))
        repository = f"{repository} --set image.tag={tag}"
        self._names = {
            "registry.example/embertide/operator": repository,
            "registry.example/embertide/worker:0.1.0-cpu": cluster.worker_image,
            "=embeddings": f"={cluster.s3.access_key}",
            "=change-me": f"={cluster.s3.secret_key}",
        }
        programs = [cluster.programs[name].parent for name in ("kubectl", "helm")]
        path = [*programs, ROOT / ".venv" / "bin", os.environ["PATH"]]
        self._env = os.environ | {
            "PATH": os.pathsep.join(map(str, path)),
            "KUBECONFIG": str(folder / "kubeconfig"),
        }

    def run(self, block: Block | str) -> str:
        """What a block prints; every command has to succeed."""
        text = block if isinstance(block, str) else block.text
        for name, own in self._names.items():
            text = text.replace(name, own)
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text], cwd=self._folder, env=self._env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=300,
        )  # fmt: skip
        assert ended.returncode == 0, f"{block}\n{text}\n{ended.stdout}"
        return ended.stdout

    def enter(self, namespace: str) -> None:
        """Go on in a namespace, as the one that kubectl takes."""
        self.run(f"kubectl config set-context --current --namespace={namespace}")


@pytest.fixture
def terminal(
    cluster: KubernetesCluster, operator: str, tiny: Inputs, tmp_path: Path
) -> Iterator[Terminal]:
    """The operator is as other tests want it afterwards."""
    del operator
    job = tiny.job("products", cluster.s3.uri("documents"), workers=workers(2, 1))
    for name in SPACES[:2]:
        cluster.kubectl("create", "namespace", name)
    try:
        yield Terminal(cluster, tmp_path, job)
    finally:
        install(cluster, RELEASE)
        for name in SPACES:
            cluster.discard(name)


def test_the_documents_commands_run(terminal: Terminal, cluster: KubernetesCluster) -> None:
    done = [
        *run_all(terminal, "README.md", SPACES[0]),
        *run_all(terminal, "docs/storage.md", SPACES[1]),
    ]
    cluster.kubectl("-n", SPACES[0], "delete", "embeddingjobs", "--all")
    page = blocks("docs/install.md", "sh")
    upgrade = next(n for n, block in enumerate(page) if "helm upgrade embertide" in block.text)
    done += map(terminal.run, page[:upgrade])
    done += run_all(terminal, "docs/troubleshooting.md", "search")
    done += run_all(terminal, "docs/sizing.md", "search")
    done += map(terminal.run, page[upgrade:])
    text = "\n".join(done)
    for said in ("STATUS: deployed", "Phase:          Succeeded", "condition met", "Completed",
                 "exchanged", 'release "embertide" uninstalled'):  # fmt: skip
        assert said in text, f"{said!r} is not in\n{text}"
    assert cluster.try_kubectl("get", "embeddingjobs", "-A").returncode != 0, "the kind is gone"


def run_all(terminal: Terminal, document: str, namespace: str) -> list[str]:
    terminal.enter(namespace)
    return [terminal.run(block) for block in blocks(document, "sh")]


def test_every_page_with_commands_is_run() -> None:
    run = {"README.md", "docs/storage.md", "docs/install.md", "docs/troubleshooting.md",
           "docs/sizing.md", "docs/security.md", *WITHOUT_CLUSTER}  # fmt: skip
    assert {name for name in documents() if blocks(name, "sh")} == run


def test_templates_of_the_documents_are_taken_by_the_api_server(
    cluster: KubernetesCluster, operator: str
) -> None:
    del operator
    namespace = cluster.namespace("documents")
    settings = replace(SETTINGS, image_cuda="registry.example/worker-cuda")
    attempt = Attempt(uid=UID, number=1, version="20261121T120000Z-abcdef", earlier=(),
                      grid=GridShape.of(2, 1), memory=1 << 30)  # fmt: skip
    for block, part in job_parts():
        raw = raw_job(**part)
        raw["metadata"]["namespace"] = namespace
        job = read_job(raw, settings)
        assert isinstance(job, EmbeddingJob), f"{block}: {job}"
        text = json.dumps(children(job, attempt, settings)[-1])
        options = ("--dry-run=server", "--validate=strict", "-f", "-")
        said = cluster.try_kubectl("apply", *options, input=text)
        assert (said.returncode, "Warning" in said.stderr) == (0, False), f"{block}: {said.stderr}"
    cluster.discard(namespace)
