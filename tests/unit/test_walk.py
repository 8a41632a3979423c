"""How far it is from a run to a kernel: files that a reader of one value goes through."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from embertide.io.storage.opening import open_storage
from embertide.kernels import native
from embertide.spec.manifest import load_manifest
from tests.support.paths import ROOT
from tests.support.run_here import run_here
from tests.support.small_job import SmallJob

PACKAGE = f"{ROOT}/worker/embertide/"
MOST_FILES = 10


class Watched:
    """The native kernels, with the files between ``run`` and the first call of each."""

    def __init__(self, lib: Any) -> None:
        self._lib, self.walks = lib, dict[str, list[str]]()

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self._lib, name)
        if name not in self.walks and (walk := _walk()):
            self.walks[name] = walk
        return kernel


def _walk() -> list[str]:
    files, frame = list[str](), sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            files.append(frame.f_code.co_filename.removeprefix(PACKAGE))
        if frame.f_code.co_name == "run" and files[-1:] == ["engine/pipeline/__init__.py"]:
            return list(dict.fromkeys(reversed(files)))
        frame = frame.f_back  # type: ignore[assignment]
    return []


def test_a_value_goes_through_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if native.lib is None:
        pytest.skip("no native kernels here, to which the walk leads")
    watched = Watched(native.lib)
    monkeypatch.setattr(native, "lib", watched)
    run_here(open_storage(None), load_manifest(SmallJob.make(tmp_path).manifest))
    assert len(watched.walks) > 10
    long = {name: walk for name, walk in watched.walks.items() if len(walk) > MOST_FILES}
    assert long == {}
    page = (ROOT / "docs" / "architecture.md").read_text().partition("**The walk of a value**")[2]
    drawn = re.findall(r"^ *([\w/]+\.py) ", page.split("```")[1], re.MULTILINE)
    assert drawn == watched.walks["spmm_linear"]
