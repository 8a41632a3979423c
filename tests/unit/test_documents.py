"""What the documents say is so: files that they name exist, and what can be run is run.

A ``sh`` block runs as it stands: ``tests/cluster/test_documents.py`` has the order. Commands in
other blocks run elsewhere, or are left out for a reason, which is here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embertide.spec.manifest import EmbeddingJob
from embertide_operator.decide.validate import read_job
from tests.support.document_blocks import (
    WITHOUT_CLUSTER,
    Block,
    blocks,
    chart_values,
    documents,
    job_parts,
)
from tests.support.go_programs import program
from tests.support.operator_world import SETTINGS, raw_job
from tests.support.paths import ROOT
from tools.pages import MADE

pytestmark = pytest.mark.needs("helm")

DOCUMENTS = [
    path for at in ("*.md", "docs/**/*.md", "*/README.md", ".github/*.md") for path in ROOT.glob(at)
]
STARTS = (
    ROOT,
    ROOT / "worker/embertide",
    ROOT / "operator/embertide_operator",
    ROOT / "charts/embertide",
    ROOT / "tests",
    ROOT / "tests/support",
)
SOURCES = {
    path.name: str(path.relative_to(ROOT))
    for folder in ("worker", "operator", "tests", "tools", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.?[py]*")
}
CHART = ROOT / "charts" / "embertide"

PROGRAMS = r"helm|kubectl|docker|docker/\S+|make|embertide|cosign|pip|uv"
COMMAND = re.compile(rf"(?!.*(?:──|   ))(?:\w+=\S+ )*(?:{PROGRAMS})(?: |$)")
NEWCOMER = ("README.md", "docs/guide.md")
"""Their ``embertide`` commands run in ``tests/distributed/test_newcomer.py``."""
LEFT_OUT = {
    "make demo": "a whole example of minutes; what it does is tested piece by piece",
    "make test": "these are the tests",
    "make cluster": "the cluster's tests start the same, and .ci/run the packages",
    "embertide run job.yaml --grid 2x2": "tests/distributed/test_traces.py runs jobs so",
    "embertide run job.yaml --force": "tests/distributed/test_unchanged.py runs it",
    "embertide run job.yaml --resume": "tests/distributed/test_resumed_runs.py runs it",
    "embertide run job.yaml --ids": "tests/distributed/test_targets.py runs it",
    "embertide plan job.yaml --ids": "tests/distributed/test_targets.py runs it",
    "embertide layers job.yaml": "tests/unit/test_cli_layers.py runs it",
    "embertide embed job.yaml": "tests/distributed/test_embed.py runs it",
    "kubectl apply -f job.yaml": "tests/cluster/test_orchestrators.py creates jobs",
    "kubectl wait embeddingjob/products": "tests/cluster/test_orchestrators.py waits so",
    "kubectl get embeddingjob/products": "tests/cluster/test_orchestrators.py reads so",
    "embertide check job.yaml": "tests/unit/test_check.py runs it on many models",
    "embertide export shop/models.py:Net": "tests/distributed/test_export_runs.py exports and runs",
    "embertide export molecules.py:Net": "tests/distributed/test_export_categories.py runs such",
    "embertide export hetero.py:Net": "tests/unit/test_export_hetero.py exports such models",
    "embertide push job.yaml": "tests/indexes/test_push.py pushes into each kind of index",
    "embertide convert job.yaml": "tests/unit/test_convert.py and tests/indexes/ convert so",
    "embertide diff job.yaml previous": "tests/unit/test_cli_held.py runs it",
    "embertide release job.yaml": "tests/unit/test_cli_held.py runs it",
    "embertide discard job.yaml": "tests/unit/test_cli_held.py runs it",
    'pip install "embertide[': "a second environment takes minutes; setup installs the same extras",
    "pip install '.": "a second environment takes minutes; setup installs the same extras",
    "docker build --file docker/worker": "the cluster's images are built from the same file",
    "docker build --file docker/push": "the cluster's tests build it, and push from its pods",
    "kubectl annotate --overwrite ej products": "tests/cluster/test_push.py asks for a push so",
    "docker push registry.example": "make release-check pushes to a registry",
    "cosign verify": "needs a signature that a workflow has made with its identity",
    "helm upgrade --install embertide oci://": "make release-check pulls the chart",
    "CRANE=crane docker/pin-base-images": "tests/unit/test_images.py, with a registry of its own",
    "UV=uv docker/pin-torch-cpu": "tests/unit/test_images.py, with an index of its own",
}
MOST_LINES = 300
OTHER_TYPES = re.compile(r"\b(text|texts|whole numbers?|true or false)\b|^true, false")
OTHERS = ("docs/schedules.md", "docs/monitoring.md", "docs/report.md", "docs/runbooks/")
"""Pages held to the code by the tests of what they tell of: ``test_rules.py``,
``test_schedules_chart.py``, ``test_submit_placeholders.py``; the runbooks' commands by
``tests/cluster/test_runbooks.py``."""


def paths(document: Path) -> list[str]:
    """What stands between backticks, or in a link, and is a path of the source tree.

    Of a file of Python that is named without a folder, where it stands; itself where none has the
    name.
    """
    text = document.read_text()
    named = re.findall(r"`([\w./-]+/[\w.-]*\.(?:py|md|yaml|toml)|[\w-]+/(?:[\w-]+/)*)`", text)
    named += [SOURCES.get(name, name) for name in re.findall(r"`([a-z][\w-]*\.[ch]?p[py])`", text)]
    linked = re.findall(r"\]\((?!https?:)([\w./-]+\.\w+)(?:#[\w-]+)?\)", text)
    return [*named, *linked]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(document: Path) -> None:
    known = (document.parent, *STARTS)
    missing = [name for name in paths(document) if not any((at / name).exists() for at in known)]
    assert missing == []


def test_paths_are_found_in_documents() -> None:
    assert "io/versions/publish.py" in paths(ROOT / "docs/architecture.md")
    assert "storage.md" in paths(ROOT / "docs/install.md")


def shown_commands() -> list[tuple[Block, str]]:
    """Commands in blocks without a language."""
    pages = [name for name in documents() if not name.startswith(OTHERS)]
    found = [block for page in pages for block in blocks(page, "")]
    return [(block, line) for block in found for line in block.commands if COMMAND.match(line)]


def test_commands_that_do_not_run_as_they_stand_run_elsewhere_or_have_a_reason() -> None:
    used = set()
    for block, command in shown_commands():
        if block.document in NEWCOMER and command.startswith("embertide "):
            continue
        reasons = [start for start in LEFT_OUT if command.startswith(start)]
        assert reasons, f"{block}: {command!r} is run by no test; make it a sh block"
        used |= set(reasons)
    assert used == set(LEFT_OUT), "a reason for a command that no document has"


@pytest.mark.parametrize("page", WITHOUT_CLUSTER)
def test_commands_that_need_no_cluster_run(page: str) -> None:
    assert blocks(page, "sh")
    for block in blocks(page, "sh"):
        subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], cwd=ROOT, check=True)


def test_every_page_is_reached_from_readme() -> None:
    reached, pending = set[str](), ["README.md"]
    while pending:
        page = pending.pop()
        if page in reached:
            continue
        reached.add(page)
        links = re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", (ROOT / page).read_text())
        targets = [(ROOT / page).parent.joinpath(link).resolve() for link in links]
        pending += [str(path.relative_to(ROOT)) for path in targets]
    assert {name for name in documents() if not name.startswith(OTHERS)} <= reached


def test_no_page_is_longer_than_one_reads() -> None:
    lines = {page: (ROOT / page).read_text().count("\n") for page in documents()}
    assert {page: count for page, count in lines.items() if count > MOST_LINES} == {}


@pytest.mark.parametrize("page", [page for page in documents() if page in MADE])
def test_types_have_their_standard_names(page: str) -> None:
    """As JSON Schema has them; a table's second column is that of types."""
    cells = re.findall(r"^\| [^|]+ \| ([^|]+) \|", (ROOT / page).read_text(), re.MULTILINE)
    assert [cell for cell in cells if OTHER_TYPES.search(cell)] == []


def test_other_names_of_types_are_seen() -> None:
    assert OTHER_TYPES.search("list of text")
    assert OTHER_TYPES.search("true, false")
    assert not OTHER_TYPES.search("string or integer")


@pytest.mark.parametrize("case", job_parts(), ids=lambda case: str(case[0]))
def test_parts_of_jobs_are_valid(case: tuple[Block, dict[str, Any]]) -> None:
    settings = replace(SETTINGS, image_cuda="registry.example/worker-cuda")
    found = read_job(raw_job(**case[1]), settings)
    assert isinstance(found, EmbeddingJob), found


@pytest.mark.parametrize("case", chart_values(), ids=lambda case: str(case[0]))
def test_the_chart_takes_the_values(case: tuple[Block, dict[str, Any]]) -> None:
    helm = program("helm")
    cluster = ("--kube-version=1.30", "--api-versions=monitoring.coreos.com/v1")
    template = [helm, "template", "embertide", CHART, *cluster, "--values=-"]
    ended = subprocess.run(
        template, input=case[0].text, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.tier(2)
def test_the_site_has_every_page_and_no_broken_link(tmp_path: Path) -> None:
    build = ["mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", *build], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")}
    assert [page for page in pages if not (tmp_path / page / "index.html").exists()] == [
        Path("index")
    ]
    text = (tmp_path / "index.html").read_text()
    assert "github.com/embertide/embertide/blob/main/README.md" in text
