"""The command line: its help, its options and what it shows.

The engine is a stand-in here (tests/support/cli.py).
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import embertide
from embertide import errors
from embertide.cli.errors import exit_codes
from embertide.cli.options import check_workers, grid_of
from embertide.errors import EmbertideError, ObjectMissing
from embertide.facts.telemetry.report import RunReport
from embertide.spec.grid import GridShape
from tests.support.cli import ESTIMATE, REPORT, Engine
from tests.support.expected import Expected
from tests.support.patience import WAIT_SECONDS

COMMANDS = [
    *("run", "plan", "check", "versions", "diff", "rollback", "release", "discard", "neighbors"),
    *("embed", "layers", "export", "show", "submit", "logs", "synth", "init", "crd"),
]


def in_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_SECONDS,
    )
    return done.stdout


# Help


def test_the_main_help_names_commands_and_exit_codes(cli: Callable[..., Any]) -> None:
    code, out, _ = cli("--help")
    assert code == 0
    for command in COMMANDS:
        assert f" {command} " in out
    for number, meaning in exit_codes():
        assert f"{number:>3}  {meaning}" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_by_example(cli: Callable[..., Any], command: str) -> None:
    code, out, _ = cli(command, "--help")
    assert code == 0
    assert "Examples" in out
    assert f"   embertide {command} " in out


def test_every_error_has_a_documented_exit_code() -> None:
    documented = dict(exit_codes())
    kinds = [k for k in vars(errors).values() if isinstance(k, type)]
    for kind in kinds:
        assert kind.exit_code in documented
        assert documented[kind.exit_code]
    assert {kind.exit_code for kind in kinds} | {0} == set(documented)


@pytest.mark.tier(2)
def test_every_error_is_in_the_tree() -> None:
    """Else help would depend on what was imported, and the error could not leave its process."""
    for module in pkgutil.walk_packages(embertide.__path__, "embertide."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    places = {kind.__module__ for kind in EmbertideError.__subclasses__()}
    assert {place for place in places if place.startswith("embertide.")} == {"embertide.errors"}


def test_version(cli: Callable[..., Any]) -> None:
    assert cli("--version")[:2] == (0, f"embertide {embertide.__version__}\n")


def test_a_runs_imports_begin_before_its_command_line_is_read(tmp_path: Path) -> None:
    code = (
        "import sys, embertide.cli, embertide.launch.bootstrap.fork_server as server\n"
        "start = server.fork_server\n"
        "def watched(*modules, keep):\n"
        "    print(*modules, 'typer' in sys.modules)\n"
        "    return start(*modules, keep=keep)\n"
        "server.fork_server = watched\n"
        "embertide.cli.main(['run', 'none.yaml'])\n"
    )
    # Whoever still held its stderr would keep this waiting.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout == "embertide.launch.bootstrap.preload False\n"
    assert "none.yaml" in done.stderr
    assert done.returncode == 2


def test_the_command_leaves_what_was_imported_to_the_system() -> None:
    code = (
        "import atexit, gc, sys, embertide.cli\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "sys.argv = ['embertide', '--version']\n"
        "embertide.cli.command()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["embertide", embertide.__version__, "True"]


def test_help_imports_nothing_heavy() -> None:
    heavy = ["torch", "numpy", "pyarrow", "boto3", "botocore", "yaml", "dgl"]
    code = (
        "import sys, embertide.cli\n"
        "try: embertide.cli.main(['run', '--help'])\n"
        f"except SystemExit: print('heavy:', [m for m in {heavy} if m in sys.modules])\n"
    )
    assert in_process(code).splitlines()[-1] == "heavy: []"


def test_a_manifest_is_checked_without_the_heavy_ones(tmp_path: Path) -> None:
    code = (
        "import sys, embertide.cli\n"
        "try: embertide.cli.main(['run', 'no-such.yaml'])\n"
        "except SystemExit as e: print(e.code, 'torch' in sys.modules, 'numpy' in sys.modules)\n"
    )
    assert in_process(code).splitlines()[-1] == "2 False False"


# Options


@pytest.mark.parametrize(
    ("text", "grid"), [("2x2", "2x2"), ("1X16", "1x16"), ("auto", None), ("03x1", "3x1")]
)
def test_grids(text: str, grid: str | None) -> None:
    found = grid_of(text)
    assert (found and str(found)) == grid


@pytest.mark.parametrize(
    "text", ["", "2", "2x", "x2", "0x2", "2x0", "-1x2", "2x2x2", "a", "2 x 2", "٢x٢"]
)
def test_grids_that_are_none(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="must be GRAPHxFEATURE"):
        grid_of(text)


def test_workers_and_grid_agree() -> None:
    check_workers(GridShape.of(2, 2), 4)
    check_workers(None, 3)
    check_workers(GridShape.of(2, 2), None)
    with pytest.raises(
        typer.BadParameter, match="--workers 3 does not fit --grid 2x2, which has 4"
    ):
        check_workers(GridShape.of(2, 2), 3)


WRONG = (
    "frobnicate",
    "run",
    "run job.yaml --frob",
    "run job.yaml --workers 0",
    "run job.yaml --workers two",
    "run job.yaml --grid 2",
    "run job.yaml --grid 2by2",
    "run job.yaml --grid 2x2 --workers 3",
    "run job.yaml --device tpu",
    "neighbors job.yaml",
    "neighbors job.yaml 1 -k 0",
    "versions",
    "versions job.yaml --output /x",
    "versions --output gs://x",
    "versions --output s3://b/x --endpoint-url minio",
    "synth /x --scale 3 --nodes 8",
    "synth /x --edges 3 --edge-factor 8",
)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_command_lines(name: str, cli: Callable[..., Any], expected: Expected) -> None:
    code, out, err = cli(*name.split())
    assert out == ""
    # Without the frame, and as one line, whose breaks are the terminal's.
    found = " ".join(re.sub("[╭─╮│╰╯]", " ", err).split())
    expected.check("cli.txt", name, f"exit code {code}\n{found}", WRONG)


# run and plan


def test_run_passes_the_options_on(cli: Callable[..., Any], engine: Engine, job: str) -> None:
    code, out, err = cli("run", job, "--grid", "2x2", "--threads", "1", "--device", "cuda")
    assert code == 0
    call = engine.calls[0]
    assert (call["grid"], call["workers"], call["threads"]) == (GridShape.of(2, 2), None, 1)
    assert call["job"].spec.workers.device == "cuda"
    assert REPORT.version in out
    assert "ingest" in err


@pytest.mark.parametrize("command", ["run", "plan"])
def test_memory_replaces_that_of_the_manifest(
    cli: Callable[..., Any], engine: Engine, job: str, command: str
) -> None:
    cli(command, job, "--memory", "1.5GiB")
    assert engine.calls[0]["job"].spec.workers.memory_bytes == 3 << 29
    code, _, err = cli(command, job, "--memory", "3")
    assert (code, len(engine.calls)) == (2, 1)
    assert "must be a number with its unit, such as 512MiB" in " ".join(err.split())


@pytest.mark.parametrize("command", ["run", "plan"])
def test_the_memory_of_a_gpu_is_for_jobs_on_gpus(
    cli: Callable[..., Any], engine: Engine, job: str, command: str
) -> None:
    code, _, err = cli(command, job, "--gpu-memory", "8Gi")
    assert (code, engine.calls) == (2, [])
    assert "--gpu-memory has no effect with device cpu: set" in " ".join(err.split())
    manifest = yaml.safe_load(Path(job).read_text())
    manifest["spec"].setdefault("workers", {})["device"] = "cuda"
    Path(job).write_text(yaml.safe_dump(manifest))
    cli(command, job, "--gpu-memory", "8Gi")
    assert engine.calls[0]["job"].spec.workers.device_memory_bytes == 8 << 30
    code, _, err = cli(command, job, "--gpu-memory", "8")
    assert (code, len(engine.calls)) == (2, 1)
    assert "--gpu-memory '8' must be a number with its unit" in " ".join(err.split())


def test_run_leaves_the_grid_to_the_manifest(
    cli: Callable[..., Any], engine: Engine, job: str
) -> None:
    cli("run", job)
    assert engine.calls[0]["grid"] is None
    assert engine.calls[0]["job"].spec.workers.grid.graph == 3
    cli("run", job, "--grid", "auto")
    assert engine.calls[1]["grid"] is None
    assert engine.calls[1]["job"].spec.workers.grid == "auto"


@pytest.mark.parametrize("command", ["run", "plan"])
def test_placeholders_are_filled_at_a_time(
    cli: Callable[..., Any], engine: Engine, job: str, command: str
) -> None:
    path = Path(job)
    path.write_text(path.read_text().replace("edges.parquet", "'dt={date-1d}/edges.parquet'"))
    assert cli(command, job, "--at", "2026-03-01")[0] == 0
    (edges,) = engine.calls[0]["job"].spec.input.edges
    assert edges.uri.endswith("/dt=2026-02-28/edges.parquet")
    for wrong in (["--at", "yesterday"], ["--time-zone", "Europe/Berlin"]):
        assert cli(command, job, *wrong)[0] == 2
    missing = ObjectMissing(f"file:///edges/dt={{date-1d}}/{command} does not exist")
    assert "{date-1d} is a placeholder: embertide run, plan" in str(missing)
    assert str(EmbertideError.from_json(missing.to_json())) == str(missing)


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("out/{date}", "{date}"),
        ("out/{datetime-6h}", "{datetime-6h}"),
        ("out/{date:%Y}/{date:%m}", "{date:%Y}"),
        ("out/{dates}/{{date}}/{}/{x", ""),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan", "check", "embed"])
def test_placeholders_need_a_time(
    cli: Callable[..., Any], engine: Engine, job: str, command: str, uri: str, problem: str
) -> None:
    manifest = yaml.safe_load(Path(job).read_text())
    manifest["spec"]["output"]["uri"] = uri
    Path(job).write_text(yaml.safe_dump(manifest))
    more = {"check": ["--against", "r.parquet"], "embed": ["--ids", "a", "--out", "e.parquet"]}
    code, _, err = cli(command, job, *more.get(command, []))
    shown = " ".join(err.split())
    assert (code == 2) is bool(problem), shown
    assert (f"spec.output.uri: {problem} is a placeholder" in shown) is bool(problem), shown
    assert ("with --at (--at now)" in shown) is bool(problem)
    assert bool(engine.calls) is (command in ("run", "plan") and not problem)


def test_quiet_shows_the_result_only(cli: Callable[..., Any], engine: Engine, job: str) -> None:
    code, out, err = cli("run", job, "--quiet")
    assert (code, err) == (0, "")
    assert REPORT.uri in out


def test_json_is_all_of_stdout(cli: Callable[..., Any], engine: Engine, job: str) -> None:
    code, out, err = cli("run", job, "--json")
    assert (code, err) == (0, "")
    progress, report = map(json.loads, out.splitlines())
    assert (progress["event"], progress["stage"]) == ("progress", "ingest")
    assert report.pop("event") == "report"
    assert RunReport.from_json(report) == REPORT


def test_plan(cli: Callable[..., Any], engine: Engine, job: str) -> None:
    code, out, _ = cli("plan", job, "--workers", "4")
    assert code == 0
    assert engine.calls[0]["workers"] == 4
    assert "10 nodes, 20 edges" in out
    code, out, _ = cli("plan", job, "--json")
    assert json.loads(out) == json.loads(json.dumps(ESTIMATE.to_json()))


# versions


@dataclasses.dataclass(frozen=True)
class Version:
    version: str
    created: str = "2026-11-21T04:19:22Z"
    rows: int = 1000
    dim: int = 4
    size: int = 2048
    current: bool = False
    row_type: str = "float32"
    comparison: None = None
    held: tuple[str, ...] = ()
    counted: str = "1,000"


def test_versions_marks_the_current_one(
    cli: Callable[..., Any], job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage: Any = types.ModuleType("embertide.io.storage.opening")
    storage.open_storage = lambda _settings: "storage"
    versions: Any = types.ModuleType("embertide.io.versions.catalog")
    day = ["2026-11-21", "04:19:22"]
    found = [Version("20261120T000000Z-aaaaaa"), Version("20261121T000000Z-bbbbbb", current=True)]
    versions.list_versions = lambda _storage, uri: found if uri.endswith("/out") else []
    monkeypatch.setitem(sys.modules, "embertide.io.storage.opening", storage)
    monkeypatch.setitem(sys.modules, "embertide.io.versions.catalog", versions)
    code, out, _ = cli("versions", job)
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert [found[0].version, *day, "1,000", "4", "2.0", "KiB"] in rows
    assert ["*", found[1].version, *day, "1,000", "4", "2.0", "KiB"] in rows
    assert "rows held in" not in out
    found[1] = dataclasses.replace(found[1], row_type="bfloat16")
    code, out, _ = cli("versions", job)
    rows = [line.split() for line in out.splitlines()]
    assert "rows held in" in out
    assert [found[0].version, "1,000", "2.0", "KiB", "float32"] in rows
    assert ["*", found[1].version, "1,000", "2.0", "KiB", "bfloat16"] in rows
    code, out, _ = cli("versions", job, "--json")
    assert json.loads(out) == [dataclasses.asdict(item) | {"held": []} for item in found]
    code, out, _ = cli("versions", "--output", "/elsewhere")
    assert (code, out) == (0, "nothing was published to file:///elsewhere yet\n")
