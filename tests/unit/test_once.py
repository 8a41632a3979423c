"""What tests build once for a machine: by one process, whole or not at all, and in no test."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import needs
from tests.support.builder import Builder
from tests.support.go_programs import MODULES
from tests.support.needs import in_turn, needed, provide
from tests.support.once import name_needs, named, once
from tests.support.patience import WAIT_SECONDS


def test_one_builds_and_the_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # as while tests are collected
    path, said, calls = tmp_path / "program", list[str](), list[int]()
    started = threading.Event()

    def make() -> None:
        calls.append(1)
        started.set()
        time.sleep(0.3)
        path.write_text("whole")

    def ask(_number: int) -> str:
        return once("thing", path, make, "a moment", said.append).read_text()

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(ask, 0)
        assert started.wait(60)
        assert [*pool.map(ask, (1, 2)), first.result()] == ["whole"] * 3
    assert len(calls) == 1
    assert said[0] == "[build] thing: about a moment on a new machine, once"
    assert said.count("[build] thing: waiting for another process that builds it") == 2
    assert said[-1].startswith("[build] thing: done in ")


def test_a_build_that_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")

    def fail() -> None:
        raise RuntimeError("interrupted")

    path = tmp_path / "program"
    with pytest.raises(RuntimeError, match="interrupted"):
        once("thing", path, fail, "a moment", lambda _line: None)
    assert once("thing", path, path.touch, "a moment", lambda _line: None).exists()


def test_a_test_that_did_not_name_it_is_refused_also_where_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBERTIDE_TEST_NEEDS", "s3")
    with pytest.raises(RuntimeError, match=r"mark the test with pytest\.mark\.needs\('thing'\)"):
        once("thing", tmp_path, tmp_path.touch, "a moment")
    name_needs(["s3", "thing"])
    assert named() == {"s3", "thing"}
    assert once("thing", tmp_path, tmp_path.touch, "a moment") == tmp_path


@pytest.mark.needs("helm")
def test_marks_and_fixtures_name_what_is_needed(
    request: pytest.FixtureRequest, s3_server: object
) -> None:
    del s3_server  # its name counts
    assert needed([request.node]) == ["helm", "s3"]
    assert named() >= {"helm", "s3"}


def test_a_name_that_nothing_has_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"needs\('helmet'\): nothing has that name; known: "):
        provide(["helmet"])


def test_a_failed_build_is_not_tried_again_and_leaves_the_test_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(needs, "_outcomes", {"thing": "thing: interrupted", "s3": ""})
    monkeypatch.setenv("EMBERTIDE_TEST_NEEDS", "helm")
    with pytest.raises(RuntimeError, match="thing: interrupted"):
        provide(["s3", "thing"])
    assert named() == set()


def test_files_whose_tests_need_nothing_run_first(request: pytest.FixtureRequest) -> None:
    def item(file: str, *needs: str) -> pytest.Item:
        test = pytest.Function.from_parent(request.node.parent, name="test", callobj=object)
        test.path = Path(file)
        test.add_marker(pytest.mark.needs(*needs))
        return test

    slow = item("slow")
    slow.add_marker(pytest.mark.distributed)
    items = [
        item("rare", "otelcol"),
        item("store", "s3"),
        item("small"),
        *(item("large"),) * 2,
        slow,
    ]
    files = [test.path.name for test in in_turn(items)]
    assert files == ["slow", "large", "large", "small", "store", "rare"]


@pytest.mark.needs("s3")
def test_a_builder_works_beside_a_test_that_did_not_name_what_it_builds(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBERTIDE_TEST_NEEDS", "")
    builder = Builder(["s3", "helmet"])
    assert builder.wait(WAIT_SECONDS) == 0
    (line,) = capfd.readouterr().err.splitlines()  # s3 is there, and nothing is refused
    assert "needs('helmet'): nothing has that name; known: " in line
    builder.stop()


def test_a_builder_that_is_stopped_leaves_no_process() -> None:
    builder = Builder(["s3"])
    builder.stop()
    assert builder.wait(0) is not None


def test_every_program_has_one_module() -> None:
    programs = [name for module in MODULES.values() for name in module.programs]
    assert len(programs) == len(set(programs))


def test_large_modules_share_what_is_compiled_for_each_of_them() -> None:
    shared = ("k8s.io/client-go", "k8s.io/apimachinery", "golang.org/x/net")
    names = ("containerd", "coredns", "helm", "helm4", "otelcol", "prometheus")
    pins = [(MODULES[name].folder / "go.mod").read_text() for name in names]
    for path in shared:
        versions = {re.findall(rf"^\s*{path} (\S+)", text, re.MULTILINE)[0] for text in pins}
        assert len(versions) == 1, f"{path}: one version costs a new machine one build: {versions}"
