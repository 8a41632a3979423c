"""Days that are run again: by kubectl from the CronJob, as the page says it, and a range."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from embertide.cli import main
from embertide.spec import naming
from tests.support.cluster.jobs import Inputs, Jobs, workers
from tests.support.document_blocks import blocks
from tests.support.paths import ROOT

pytestmark = pytest.mark.cluster


def create_schedule(tiny: Inputs, jobs: Jobs, output: str) -> None:
    """The example without Helm, for jobs over the tiny graph."""
    text = (ROOT / "examples/schedule.yaml").read_text()
    text = text.replace("ghcr.io/embertide/operator:0.1.0", jobs.cluster.operator_image)
    objects = {item["kind"]: item for item in yaml.safe_load_all(text)}
    spec = tiny.job("products", output, workers=workers(1, 1))["spec"]
    manifest = yaml.safe_load(objects["ConfigMap"]["data"]["job.yaml"]) | {"spec": spec}
    objects["ConfigMap"]["data"]["job.yaml"] = yaml.safe_dump(manifest)
    # No other firing but those of the test.
    objects["CronJob"]["spec"]["suspend"] = True
    jobs.apply(*objects.values())


def run_page(jobs: Jobs, folder: Path, day: str) -> None:
    """The page's commands, in this namespace, for a day of November."""
    (block,) = (b for b in blocks("docs/schedules.md", "") if "annotate --local" in b.text)
    text = block.text.replace("20261120", f"202611{day}").replace("2026-11-20", f"2026-11-{day}")
    config = folder / "kubeconfig"
    config.write_bytes(jobs.cluster.kubeconfig.read_bytes())
    kubectl = jobs.cluster.programs["kubectl"].parent
    env = os.environ | {"KUBECONFIG": str(config), "PATH": f"{kubectl}:{os.environ['PATH']}"}
    enter = f"kubectl config set-context --current --namespace={jobs.namespace}\n"
    command = ["bash", "-euo", "pipefail", "-c", enter + text]
    subprocess.run(command, env=env, check=True, timeout=60)


def ended(jobs: Jobs, name: str) -> tuple[str, str]:
    """The condition with which a Job of the batch API ended, and its log."""

    def look() -> str:
        found: dict[str, Any] = jobs.cluster.get("-n", jobs.namespace, "job", name)
        conditions = found["status"].get("conditions") or []
        return next((c["type"] for c in conditions if c["status"] == "True"
                     and c["type"] in ("Complete", "Failed")), "")  # fmt: skip

    kind = jobs.cluster.wait_for(look, 120, f"Job {name} ends")
    return str(kind), jobs.kubectl("logs", f"job/{name}")


def test_a_day_by_kubectl(tiny: Inputs, jobs: Jobs, tmp_path: Path) -> None:
    create_schedule(tiny, jobs, f"{jobs.root}/out")
    run_page(jobs, tmp_path, "20")
    kind, log = ended(jobs, "products-20261120")
    assert (kind, log) == ("Complete", "products-20261120-0200 created\n")
    jobs.complete("products-20261120-0200")
    made = jobs.cluster.get("-n", jobs.namespace, "ej", "products-20261120-0200")
    assert made["metadata"]["annotations"][naming.SCHEDULED_TIME] == "2026-11-20T02:00:00Z"
    tiny.check(f"{jobs.root}/out")
    # The day before would replace newer data by older.
    run_page(jobs, tmp_path, "19")
    kind, log = ended(jobs, "products-20261119")
    assert kind == "Failed"
    assert "publishes data of a later time to the same output" in log
    assert list(jobs.statuses()) == ["products-20261120-0200"]
    assert len(tiny.versions(f"{jobs.root}/out")) == 1


def test_a_range_of_days(
    tiny: Inputs,
    jobs: Jobs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(jobs.cluster.kubeconfig))
    template = tmp_path / "job.yaml"
    template.write_text(yaml.safe_dump(tiny.job("products", f"{jobs.root}/out")))
    options = ("--from=2026-11-01T03:00", "--to=2026-11-03", "-n", jobs.namespace)
    with pytest.raises(SystemExit) as left:
        main(["submit", str(template), *options])
    lines = capsys.readouterr().out.splitlines()
    assert left.value.code in (0, None), lines
    names = [f"products-2026110{day}-0300" for day in (1, 2, 3)]
    created = [line for line in lines if line.endswith(" created")]
    assert created == [f"{name} created" for name in names]
    # Each has published before the next one is created.
    for name, after in zip(names, created[1:], strict=False):
        last = next(i for i, line in enumerate(lines) if line.startswith(f"{name}: Succeeded"))
        assert last < lines.index(after)
    assert len(tiny.versions(f"{jobs.root}/out")) == 3
