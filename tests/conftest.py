"""What tests of every kind share: the S3 server, started when the first test asks for it.

Tests of the cluster need a process alone, all others gain from several; ``--cluster`` parts them.
"""

from __future__ import annotations

import gc
import multiprocessing.forkserver
import os
import signal
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from embertide.models.dgl_interop import why_no_dgl
from tests.support import tiers
from tests.support.expected import CHANGED, Expected, print_changes
from tests.support.needs import in_turn, needed, provide, speaker
from tests.support.s3.server import AMBIENT, S3Server, server_program

if TYPE_CHECKING:
    from embertide.io.storage.protocol import Storage

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
        "--tier",
        type=int,
        choices=(1, 2, 3),
        default=None,
        help="tests of tiers up to this one (tests/support/tiers.py); default: 1 of all tests,"
        " 2 of those that are named",
    )
    parser.addoption(
        "--from-tier",
        type=int,
        choices=(1, 2, 3),
        default=1,
        help="tests of tiers from this one on; those before it have passed, say",
    )
    parser.addoption(
        "--room",
        default=None,
        help="tests whose files import this package of worker or operator, such as program.steps",
    )
    parser.addoption(
        "--update",
        action="store_true",
        help="write what is found into the files of tests/expected in place of comparing it",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.tier is None:  # Decided once; xdist's workers are given it.
        whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
        config.option.tier = 1 if whole else 2
    if config.option.tier == 1:
        tiers.hide_packages()
    settings.load_profile("thorough" if config.option.tier == 3 else "usual")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name what a run of all tests leaves to later tiers, and why."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    for line in tiers.summary(config) if whole else ():
        terminalreporter.write_line(line)
    print_changes(terminalreporter)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what a process of xdist left out to the one that reports."""
    gc.unfreeze()  # Extensions report what is never freed.
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = tiers.left_as_list(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what one process of xdist left out: all collect the same."""
    tiers.take_left(node.config, getattr(node, "workeroutput", {}).get("left", ()))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out folders and files that have no test to run: importing them takes seconds."""
    if collection_path.parent == Path(__file__).parent and collection_path.is_dir():
        other = "without" if collection_path.name == "cluster" else "only"
        if config.option.cluster == other:
            return True
    whole = collection_path.name in tiers.FOLDERS
    tests = sorted(collection_path.glob("test_*.py")) if whole else [collection_path]
    if not tests or not tests[0].match("test_*.py"):
        return None
    tier, why = tiers.tier_of_file(tests[0])
    if tier <= config.option.tier:
        return None
    tiers.leave_out(config, tier, why, len(tests))
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    spread = tiers.spread(items)
    chosen = [item for item in items if _is_chosen(config, item, spread.get(item))]
    config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    items[:] = in_turn(chosen)


def _is_chosen(config: pytest.Config, item: pytest.Item, tried: bool | None) -> bool:
    """Whether a test runs.

    Args:
        tried: of a test with many parameters, whether the first tier tries this one.
    """
    of_cluster = item.get_closest_marker("cluster") is not None
    if config.option.cluster != "with" and of_cluster != (config.option.cluster == "only"):
        return False
    tier, why = tiers.tier_of(item)
    last = 2 if tier == 1 and tried is not None else tier
    if last > tier and not tried:
        tier, why = last, "more parameters of what was tried"
    if tier > config.option.tier:
        tiers.leave_out(config, tier, why)
    within = config.option.from_tier <= last and tier <= config.option.tier
    return within and tiers.is_of_room(item, config.option.room)


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
    """Fail a test that has not what it needs, and skip DGL where it has no wheel; others run."""
    if _FAILED_BUILD in item.stash:
        pytest.fail(item.stash[_FAILED_BUILD], pytrace=False)
    if tiers.is_of_dgl(item) and (reason := why_no_dgl()):
        pytest.skip(reason)


@pytest.fixture(scope="module", autouse=True)
def _collect_quickly() -> None:
    """Leave what is imported out of collections, of which each run in this process has several.

    Half a million objects take them a fifth of a second each.
    """
    gc.collect()
    gc.freeze()


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
    from embertide.io.storage.opening import open_storage

    return open_storage(None)


@pytest.fixture
def output(tmp_path: Path) -> str:
    """Where versions are published, in files."""
    return f"file://{tmp_path}/out"


@pytest.fixture
def expected(
    pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> Expected:
    """Compares texts with those of ``tests/expected``, or writes them with ``--update``."""
    return Expected(pytestconfig.getoption("--update"), partial(record_property, CHANGED))
