"""What tests of every kind share: the S3 server, started when the first test asks for it.

Tests of the cluster need a process alone, all others gain from several; ``--cluster`` parts them.
"""

from __future__ import annotations

import multiprocessing.forkserver
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.cluster.requirements import missing
from tests.support.needs import QUICK, in_turn, needed, provide, speaker
from tests.support.s3.server import AMBIENT, S3Server, server_program

if TYPE_CHECKING:
    from embertide.storage.protocol import Storage

_FAILED_BUILD = pytest.StashKey[str]()

_preload = multiprocessing.forkserver.set_forkserver_preload

# Started in the background or by nohup, we would ignore these, and so would all that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Set before torch is imported, here and in all that tests start: its threads wait for each other by
# spinning, which on a busy machine costs up to eight times what they compute.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Whether its kernels are interpreted, Triton decides as it is imported, by PyTorch Geometric say.
if not any(Path("/dev").glob("nvidia*")):
    os.environ.setdefault("TRITON_INTERPRET", "1")

# pyarrow imports pandas where there is one, as here and not in the workers' image. The fork server
# does it once for all workers.
multiprocessing.forkserver.set_forkserver_preload = lambda modules: _preload([*modules, "pandas"])

# Machines that run tests are busy; how long one example takes says nothing.
settings.register_profile("usual", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=400)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster",
        choices=("with", "without", "only"),
        default="with",
        help="tests that run on the test cluster: with the others, without them, only them",
    )
    parser.addoption(
        "--builds",
        choices=("all", "few"),
        default=None,
        help="all tests, or without those that need programs which take minutes to build on a new"
        " machine, the S3 server apart; default: few in a whole run where the cluster cannot run",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="ten times the examples of each property, and every model on every grid",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("thorough" if config.getoption("--thorough") else "usual")
    if config.option.builds is None:  # decided once; xdist's workers are given it
        whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
        config.option.builds = "few" if whole and missing() is not None else "all"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name what a run leaves out, and how to have it."""
    if config.option.builds == "few" and config.option.cluster != "only":
        terminalreporter.write_line(_left_out())


def _left_out() -> str:
    return (
        "left out: tests of the chart, rules, images and workflows, whose programs take minutes to"
        f" build on a new machine, since {missing()}; ARGS=--builds=all runs them all the same"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave folders out that have no test to run: importing their tests takes seconds."""
    of_cluster = collection_path.name == "cluster"
    if collection_path.parent != Path(__file__).parent or not collection_path.is_dir():
        return None
    return True if config.getoption("--cluster") == ("without" if of_cluster else "only") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = [item for item in items if _is_chosen(config, item)]
    config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    items[:] = in_turn(chosen)


def _is_chosen(config: pytest.Config, item: pytest.Item) -> bool:
    of_cluster = item.get_closest_marker("cluster") is not None
    if config.option.cluster != "with" and of_cluster != (config.option.cluster == "only"):
        return False
    return of_cluster or config.option.builds == "all" or set(needed([item])) <= QUICK


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Build what the test names before its time limit begins, which is another wrapper's."""
    try:
        provide(needed([item]), speaker(item.config))
    except RuntimeError as error:
        item.stash[_FAILED_BUILD] = str(error)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that has not what it needs; the others run."""
    if _FAILED_BUILD in item.stash:
        pytest.fail(item.stash[_FAILED_BUILD], pytrace=False)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The process; use ``s3``, which also gives credentials."""
    server = S3Server(server_program(), tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A running S3 server, with its credentials in this process's environment."""
    s3_server.start()
    for name in AMBIENT:
        monkeypatch.delenv(name, raising=False)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def storage() -> Storage:
    """The local one, but for tests of others."""
    from embertide.storage.opening import open_storage

    return open_storage(None)


@pytest.fixture
def output(tmp_path: Path) -> str:
    """Where versions are published, in files."""
    return f"file://{tmp_path}/out"
