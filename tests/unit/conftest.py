"""What unit tests share."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from embertide.cli import main
from embertide.kernels import native
from tests.support.cli import JOB, Engine
from tests.support.manifests import EXAMPLE


@pytest.fixture(params=["native", "fallback"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which kernels do the work: the compiled ones, or torch's and numpy's in their place."""
    if request.param == "fallback":
        monkeypatch.setattr(native, "lib", None)
    elif native.lib is None:
        pytest.skip(native.describe())
    return str(request.param)


@pytest.fixture
def example() -> dict[str, Any]:
    """The manifest of the design, to be changed."""
    return yaml.safe_load(EXAMPLE)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    for name, function in [
        ("embertide.launch.local", engine.run_job),
        ("embertide.engine.planning.estimate", engine.estimate_job),
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
