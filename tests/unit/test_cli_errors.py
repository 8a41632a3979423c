"""How every error ends a command: its message, its exit code, its JSON.

The engine is a stand-in here (tests/support/cli.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embertide import errors
from embertide.cli import main
from embertide.cli.errors import extra_for
from embertide.errors import EmbertideError, InputError, ManifestError
from tests.support.cli import JOB, Engine
from tests.support.patience import WAIT_SECONDS


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


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("numpy", "run", "worker"),
        ("numpy", "versions", "read"),
        ("torch.nn", "show", "worker"),
        ("kubernetes", "logs", "submit"),
        ("kopf", "submit", "operator"),
        ("psycopg", "push", "pgvector"),
        ("qdrant_client.models", "push", "qdrant"),
        ("deltalake", "run", "tables"),
        ("nothing_of_ours", "run", None),
    ],
)
def test_a_missing_module_is_of_the_command_s_extra_or_the_smallest(
    module: str, command: str, extra: str | None
) -> None:
    assert extra_for(module, command) == extra


def test_a_missing_manifest_comes_before_a_missing_library(
    cli: Callable[..., Any], engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.delitem(sys.modules, "embertide.launch.bootstrap.fork_server", raising=False)
    code, _, err = cli("run", str(tmp_path / "none.yaml"))
    assert (code, "no such file" in err, "psutil" in err) == (2, True, False)


def test_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    pipe = tmp_path / "job.yaml"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", "from embertide.cli import main; main()", "plan", str(pipe)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        # Opening waits until the command reads its manifest, which then waits for us.
        writer = pipe.open("w")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_SECONDS)
        writer.close()
    assert process.returncode == 130
    assert err == "embertide: error: interrupted\n"


def test_a_closed_pipe_is_no_traceback(job: str) -> None:
    command = f"{sys.executable} -c 'from embertide.cli import main; main()' --help | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.stderr == ""
