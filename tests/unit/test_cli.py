"""The command line: its help, its options, and how every error ends.

The engine is replaced by a stand-in here; runs of the real one are tested elsewhere.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import embertide
from embertide import errors
from embertide.cli import main
from embertide.cli.errors import exit_codes
from embertide.cli.options import check_workers, parse_grid
from embertide.errors import EmbertideError, InputError, ManifestError
from embertide.progress import Progress
from embertide.report import Estimate, InputSize, RunReport

COMMANDS = ["run", "plan", "versions", "rollback", "neighbors", "synth", "crd"]
JOB = """\
apiVersion: embertide.dev/v1alpha1
kind: EmbeddingJob
metadata: {name: toy}
spec:
  input:
    edges: [{uri: edges.parquet, format: parquet}]
    nodes: [{features: {uri: x.parquet, vectorColumn: x}}]
  model: {uri: model}
  output: {uri: out}
  workers: {grid: {graph: 3, feature: 1}}
"""
REPORT = RunReport(
    version="20261121T041922Z-3fa9c1",
    uri="file:///out/versions/20261121T041922Z-3fa9c1",
    rows=10,
    dim=4,
    manifest_digest="sha256:00",
    grid=(2, 2),
    nodes=10,
    edges=20,
    stages={"ingest": 1.0},
    total_seconds=1.0,
    ingest_edges_per_second=20.0,
    infer_edges_per_second=20.0,
)
ESTIMATE = Estimate(
    inputs=[InputSize("file:///e.parquet", 10, "edges")],
    total_bytes=10,
    nodes=10,
    nodes_exact=True,
    edges=20,
    edges_exact=True,
    width=4,
    grid=(2, 2),
    memory_per_worker_bytes={"ingest": 100},
    peak_memory_per_worker_bytes=100,
)


@dataclasses.dataclass
class Engine:
    """Stands in for the engine: remembers how it was called, fails when told."""

    calls: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    error: BaseException | None = None

    def run_job(self, job: Any, **options: Any) -> RunReport:
        self.calls.append({"job": job, **options})
        options["on_progress"](Progress("ingest", fraction=0.5))
        if self.error is not None:
            raise self.error
        return REPORT

    def estimate_job(self, job: Any, **options: Any) -> Estimate:
        self.calls.append({"job": job, **options})
        return ESTIMATE


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    for name, function in [
        ("embertide.local", engine.run_job),
        ("embertide.stages.estimate", engine.estimate_job),
    ]:
        module = types.ModuleType(name)
        setattr(module, function.__name__, function)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("EMBERTIDE_DEBUG", raising=False)
    return engine


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return str(path)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line; gives its exit code, stdout and stderr."""

    def run(*argv: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(argv)
        code = left.value.code
        assert code is None or isinstance(code, int)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code or 0, out, err

    return run


def in_process(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
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


def test_version(cli: Callable[..., Any]) -> None:
    assert cli("--version")[:2] == (0, f"embertide {embertide.__version__}\n")


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
    ("text", "grid"), [("2x2", (2, 2)), ("1X16", (1, 16)), ("auto", None), ("03x1", (3, 1))]
)
def test_grids(text: str, grid: tuple[int, int] | None) -> None:
    assert parse_grid(text) == grid


@pytest.mark.parametrize(
    "text", ["", "2", "2x", "x2", "0x2", "2x0", "-1x2", "2x2x2", "a", "2 x 2", "٢x٢"]
)
def test_grids_that_are_none(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="must be GRAPHxFEATURE"):
        parse_grid(text)


def test_workers_and_grid_agree() -> None:
    check_workers((2, 2), 4)
    check_workers(None, 3)
    check_workers((2, 2), None)
    with pytest.raises(
        typer.BadParameter, match="--workers 3 does not fit --grid 2x2, which has 4"
    ):
        check_workers((2, 2), 3)


@pytest.mark.parametrize(
    "argv",
    [
        ["frobnicate"],
        ["run"],
        ["run", "job.yaml", "--frob"],
        ["run", "job.yaml", "--workers", "0"],
        ["run", "job.yaml", "--grid", "2"],
        ["run", "job.yaml", "--grid", "2x2", "--workers", "3"],
        ["run", "job.yaml", "--device", "tpu"],
        ["neighbors", "job.yaml"],
        ["neighbors", "job.yaml", "1", "-k", "0"],
        ["versions"],
        ["versions", "job.yaml", "--output", "/x"],
        ["versions", "--output", "gs://x"],
        ["versions", "--output", "s3://b/x", "--endpoint-url", "minio"],
        ["synth", "/x", "--scale", "3", "--nodes", "8"],
        ["synth", "/x", "--edges", "3", "--edge-factor", "8"],
    ],
)
def test_wrong_command_lines_end_with_2(cli: Callable[..., Any], argv: list[str]) -> None:
    code, out, err = cli(*argv)
    assert code == 2
    assert out == ""
    assert "Usage: embertide" in err


# run and plan


def test_run_passes_the_options_on(cli: Callable[..., Any], engine: Engine, job: str) -> None:
    code, out, err = cli("run", job, "--grid", "2x2", "--threads", "1", "--device", "cuda")
    assert code == 0
    call = engine.calls[0]
    assert (call["grid"], call["workers"], call["threads"]) == ((2, 2), None, 1)
    assert call["job"].spec.workers.device == "cuda"
    assert REPORT.version in out
    assert "ingest" in err


def test_run_leaves_the_grid_to_the_manifest(
    cli: Callable[..., Any], engine: Engine, job: str
) -> None:
    cli("run", job)
    assert engine.calls[0]["grid"] is None
    assert engine.calls[0]["job"].spec.workers.grid.graph == 3
    cli("run", job, "--grid", "auto")
    assert engine.calls[1]["grid"] is None
    assert engine.calls[1]["job"].spec.workers.grid == "auto"


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


def test_versions_marks_the_current_one(
    cli: Callable[..., Any], job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage: Any = types.ModuleType("embertide.store.storage")
    storage.open_storage = lambda _settings: "storage"
    versions: Any = types.ModuleType("embertide.store.versions")
    day = ["2026-11-21", "04:19:22"]
    found = [Version("20261120T000000Z-aaaaaa"), Version("20261121T000000Z-bbbbbb", current=True)]
    versions.list_versions = lambda _storage, uri: found if uri.endswith("/out") else []
    monkeypatch.setitem(sys.modules, "embertide.store.storage", storage)
    monkeypatch.setitem(sys.modules, "embertide.store.versions", versions)
    code, out, _ = cli("versions", job)
    rows = [line.split() for line in out.splitlines()]
    assert code == 0
    assert [found[0].version, *day, "1,000", "4", "2.0", "KiB"] in rows
    assert ["*", found[1].version, *day, "1,000", "4", "2.0", "KiB"] in rows
    code, out, _ = cli("versions", job, "--json")
    assert json.loads(out) == [dataclasses.asdict(item) for item in found]
    code, out, _ = cli("versions", "--output", "/elsewhere")
    assert (code, out) == (0, "nothing was published to file:///elsewhere yet\n")


# How errors end


@pytest.mark.parametrize(
    "kind",
    [k for k in vars(errors).values() if isinstance(k, type) and k is not ManifestError],
)
def test_errors_of_the_engine(
    cli: Callable[..., Any], engine: Engine, job: str, kind: type[EmbertideError]
) -> None:
    engine.error = kind("s3://b/x.csv line 7: 'abc' is no number")
    code, out, err = cli("run", job, "--quiet")
    assert code == kind.exit_code
    assert err == "embertide: error: s3://b/x.csv line 7: 'abc' is no number\n"
    assert out == ""


def test_errors_are_json_too(cli: Callable[..., Any], engine: Engine, job: str) -> None:
    engine.error = InputError("row 7")
    code, out, err = cli("run", job, "--json")
    assert json.loads(out.splitlines()[-1]) == {
        "event": "error",
        "error": "InputError",
        "message": "row 7",
        "exit_code": 3,
        "permanent": True,
    }
    assert (code, err) == (3, "embertide: error: row 7\n")


def test_a_manifests_problems_are_listed_in_json(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(JOB.replace("format: parquet", "format: orc").replace("EmbeddingJob", "Job"))
    code, out, err = cli("plan", str(path), "--json")
    assert code == 2
    problems = json.loads(out)["problems"]
    assert [p["path"] for p in problems] == ["kind", "spec.input.edges[0].format"]
    assert err.startswith(f"embertide: error: {path} has 2 problems:\n  kind: is 'Job'; must be")


def test_debug_shows_the_traceback(
    engine: Engine, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBERTIDE_DEBUG", "1")
    engine.error = InputError("row 7")
    with pytest.raises(InputError):
        main(["run", job])


def test_a_bug_is_not_dressed_up(engine: Engine, job: str) -> None:
    engine.error = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        main(["run", job])


def test_a_missing_library_says_what_to_install(
    cli: Callable[..., Any], engine: Engine, job: str
) -> None:
    engine.error = ModuleNotFoundError("No module named 'torch'", name="torch")
    code, _, err = cli("run", job, "--quiet")
    assert code == 1
    assert err == "embertide: error: this command needs torch: pip install 'embertide[worker]'\n"


def test_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    pipe = tmp_path / "job.yaml"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", "from embertide.cli import main; main()", "plan", str(pipe)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        # Opening waits until the command reads its manifest, which then waits for us.
        writer = pipe.open("w")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        writer.close()
    assert process.returncode == 130
    assert err == "embertide: error: interrupted\n"


def test_a_closed_pipe_is_no_traceback(job: str) -> None:
    command = f"{sys.executable} -c 'from embertide.cli import main; main()' --help | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
