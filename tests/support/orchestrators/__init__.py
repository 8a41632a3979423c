"""Airflow and Dagster in environments of their own, and the programs of docs/orchestrators.md.

``airflow.txt`` and ``dagster.txt`` pin all that they are made of, with hashes; to renew those:
``uv pip compile --no-deps --generate-hashes --no-header --no-annotate FILE -o FILE``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.document_blocks import blocks
from tests.support.once import Say, once
from tests.support.paths import ROOT
from tests.support.shared_cache import SHARED_CACHE

PAGE = "docs/orchestrators.md"
NAMES = ("airflow", "dagster")
"""By which tests ask for them."""
_HERE = Path(__file__).resolve().parent
_DATABASE = "airflow.db"
_LOCAL = {"AIRFLOW__CORE__LOAD_EXAMPLES": "False"}


def environment_of(name: str, say: Say = print) -> Path:
    """The folder of programs of an environment; see :func:`tests.support.once.once`."""
    pins = (_HERE / f"{name}.txt").read_bytes()
    key = hashlib.sha256(pins + sys.version.encode()).hexdigest()[:16]
    folder = SHARED_CACHE / "orchestrators" / f"{name}-{key}"
    once(name, folder, lambda: _make(name, folder), "2 minutes", say)
    return folder / "bin"


def _make(name: str, folder: Path) -> None:
    """Programs know where they stand, so what was begun is removed where it fails."""
    uv = shutil.which("uv") or str(ROOT / ".cache" / "uv" / "bin" / "uv")
    folder.parent.mkdir(parents=True, exist_ok=True)
    install = ["pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
    try:
        for words in (
            ["venv", "--quiet", "--python", sys.executable, str(folder)],
            [*install, "--require-hashes", "--requirements", str(_HERE / f"{name}.txt")],
        ):
            _run([uv, *words])
        if name == "airflow":  # half a minute, which no test has to wait for
            migrate = [str(folder / "bin" / "airflow"), "db", "migrate"]
            _run(migrate, {"AIRFLOW_HOME": str(folder / "home"), **_LOCAL})
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _run(command: list[str], env: Mapping[str, str] | None = None) -> None:
    variables = None if env is None else _plain() | dict(env)
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr[-2000:]}")


def written(folder: Path, program: str, job: dict[str, Any]) -> Path:
    """A program of the page as it stands, in a folder beside the template of a job."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / Path(program).name
    path.write_text(block(program))
    (folder / "products.yaml").write_text(yaml.safe_dump(job))
    return path


def block(first_line: str) -> str:
    """The page's block that begins with a comment of these words."""
    (text,) = (b.text for b in blocks(PAGE) if b.text.startswith(f"# {first_line}\n"))
    return text


def run_dag(folder: Path, job: dict[str, Any], kubeconfig: Path, day: str) -> tuple[int, str]:
    """``airflow dags test`` of the page's DAG for a day; its exit code and output."""
    written(folder / "dags", "dags/products.py", job)
    connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(kubeconfig)}}
    env = _plain() | {
        "AIRFLOW_HOME": str(folder / "home"),
        **_LOCAL,
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps(connection),
    }
    programs = environment_of("airflow")
    if not (folder / "home" / _DATABASE).exists():
        (folder / "home").mkdir(parents=True)
        shutil.copy(programs.parent / "home" / _DATABASE, folder / "home")
    command = [str(programs / "airflow"), "dags", "test", "products", day]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    return done.returncode, output


def run_dagster(
    folder: Path, job: dict[str, Any], kubeconfig: Path, script: str
) -> tuple[int, str, str]:
    """A Python program with the page's module as ``products``; exit code, output and errors."""
    written(folder, "products.py", job)
    (folder / "driver.py").write_text(script)
    env = _plain() | {"KUBECONFIG": str(kubeconfig), "DAGSTER_HOME": str(folder)}
    python = str(environment_of("dagster") / "python")
    done = subprocess.run(
        [python, "driver.py"], cwd=folder, env=env, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
