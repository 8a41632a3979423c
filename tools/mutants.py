"""Mutants: small faults in the product's code, drawn by a seed, that a test should notice each.

    python -m tools.mutants --list                    # the 200 of a seed
    python -m tools.mutants --tier 1 tests/unit       # try them with the first tier of these files
    python -m tools.mutants --tier 2 tests/unit ...   # and what survived with the second
    python -m tools.mutants --table                   # what is known, by room, as markdown

They are tried in a copy of the commit with an environment of its own (``--folder``). A file of
tests is imported once; its tests run once as they are, noting which functions they call, and then
those that call a mutant's function run in a fork in which that function is the mutant, the quickest
first, until one fails. What functions alone cannot hold is tried at the end by processes that
import it. Each try is a row of a file there, and a run goes on where it was. ``mutants.toml`` names
those that no test can notice, with reasons.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import gc
import importlib
import itertools
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tools.mutations import (
    ROOMS,
    Codes,
    Mutant,
    drawn,
    files,
    functions_of,
    recording,
    replacing,
)

ROOT = Path(__file__).resolve().parents[1]
PRELOADED = (
    "torch", "torch_geometric", "dgl", "pandas", "pyarrow.parquet", "scipy.sparse", "boto3",
    "hypothesis", "kubernetes", "kopf", "pydantic", "typer", "safetensors.torch",
)  # fmt: skip
"""What tests import of others, once for all mutants,"""
OURS = (
    "embertide.launch.worker",
    "embertide.cli",
    "embertide.edge.check",
    "embertide_operator.runtime",
)
"""and what they import of ours, where a mutant can be put into functions that are imported."""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "OPENBLAS_NUM_THREADS": "1",
    "TRITON_INTERPRET": "1",
    "PYTHONDONTWRITEBYTECODE": "",
}
IMPORT_SECONDS = 10
"""What a try counts, beside its tests, where the product is imported for it."""

# The copy in which they are tried.


def make_copy(folder: Path) -> Path:
    """The commit that is checked out here, with an environment that imports the copy's packages.

    The environment is links to ours, but for the few files that name where the product is.
    """
    tree, ours, git = folder / "tree", ROOT / ".venv", ["git", "-c", "advice.detachedHead=false"]
    if not tree.exists():
        subprocess.run([*git, "clone", "-q", "--shared", "--no-checkout", ROOT, tree], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run([*git, "fetch", "-q", ROOT, head.stdout.decode().strip()], cwd=tree, check=True)
    subprocess.run([*git, "checkout", "-qf", "FETCH_HEAD"], cwd=tree, check=True)
    venv = tree / ".venv"
    shutil.rmtree(venv, ignore_errors=True)
    packages = next(ours.glob("lib/python*/site-packages"))
    for theirs in (ours / "bin", packages):
        to = venv / theirs.relative_to(ours)
        to.mkdir(parents=True)
        for entry in theirs.iterdir():
            named = (
                entry.suffix in ("", ".py", ".pth") and entry.is_file() and not entry.is_symlink()
            )
            if named and f"{ROOT}/".encode() in (content := entry.read_bytes()):
                (to / entry.name).write_bytes(
                    content.replace(f"{ROOT}/".encode(), f"{tree}/".encode())
                )
                shutil.copymode(entry, to / entry.name)
            elif entry.name != "__pycache__":
                (to / entry.name).symlink_to(entry.resolve() if theirs == packages else entry)
    python = venv / "bin" / "python3.11"
    for link in (venv / "bin").glob("python*"):
        link.unlink()
        link.symlink_to((ours / "bin" / "python").resolve())
    shutil.copy(ours / "pyvenv.cfg", venv)
    (venv / packages.relative_to(ours) / "mutant_calls.py").write_text(
        CALLS.format(log=str(folder / "calls"), now=str(folder / "now"))
    )
    return python.with_name("python")


CALLS = '''"""Notes once for a test which functions it calls, also in other processes."""
seen = set()


def call(name):
    if name not in seen:
        seen.add(name)
        try:
            with open({now!r}) as now, open({log!r}, "a") as log:
                log.write(now.read() + "\\t" + name + "\\n")
        except OSError:  # a test of limits
            seen.discard(name)
'''


# The process that has imported other people's packages and ours, forked for each file of tests.


class _Tests:
    """A plugin of pytest: runs one file's tests in forks, first as they are, then with mutants.

    Args:
        chosen: mutants by the text of the file that each is in.
        most: seconds of recorded tests for a mutant.
    """

    def __init__(
        self, folder: Path, name: str, tier: int, chosen: list[tuple[Mutant, str]], most: float
    ) -> None:
        self.folder, self.name, self.tier, self.most = folder, name, tier, most
        self.chosen, self.verdict = chosen, folder / "verdict"
        self.table: list[dict[str, Any]] = []
        self.first = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        self.items = {item.nodeid: item for item in session.items}
        at_import = importlib.import_module("mutant_calls").seen
        known = [row for row in _rows_of(self.folder / "map") if _is_of(row, self.name, self.tier)]
        if not self.items.keys() <= {row["test"] for row in known}:
            recorded = _Recorded(self.folder, self.tier, session.items)
            session.config.pluginmanager.register(recorded)
            self._fork(lambda: self._record(recorded), 1200)
            session.config.pluginmanager.unregister(recorded)
            known = [r for r in _rows_of(self.folder / "map") if _is_of(r, self.name, self.tier)]
        latest = {row["test"]: row for row in known if row["test"] in self.items}
        good = [row for row in latest.values() if row["good"]]
        live = functions_of(ROOT)
        gc.freeze()
        for mutant, text, spent in alive(self.folder, self.chosen, self.name, self.tier):
            tests, seconds = within(callers_of(mutant, good), self.most - spent)
            if tests:
                path = ROOT / mutant.path
                row: dict[str, Any] = {"verdict": "elsewhere"}
                begun, before = time.monotonic(), path.read_text()
                noting = recording(mutant.path, text)
                codes = replacing(path, before, noting, live)
                if codes is not None and f"{mutant.path}:{mutant.function}" not in at_import:
                    self._note({"verdict": "not run"})
                    with swapped(path, noting):
                        status = self._fork(partial(self._try, codes, tests), 30 + 5 * seconds)
                    row = json.loads(self.verdict.read_text())
                    row |= {"verdict": "timed out"} if status is None else {}
                row |= {"tests": len(tests), "recorded": round(seconds, 1)}
                row |= {"seconds": round(time.monotonic() - begun, 1)}
                _append_row(self.folder, mutant, self.name, self.tier, row)
        return True

    def _fork(self, work: Callable[[], None], seconds: float) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder / "tmp")
        return forked(work, seconds)

    def _record(self, recorded: _Recorded) -> None:
        self._run(list(self.items), first_failure=False)
        _append(self.folder / "map", recorded.rows_with_calls())

    def _try(self, codes: Codes, tests: list[dict[str, Any]]) -> None:
        for function, code in codes.items():
            function.__code__ = code
        for test in tests:
            mark = pytest.mark.timeout(20 + 5 * test["seconds"])
            self.items[test["test"]].add_marker(mark)
        self._run([test["test"] for test in tests], first_failure=True)
        if not self.first:
            self._note({"verdict": "survived"})

    def _run(self, names: list[str], *, first_failure: bool) -> None:
        for at, name in enumerate(names):
            item, after = self.items[name], [self.items[n] for n in names[at + 1 : at + 2]]
            if first_failure:  # Until it ends, it is the one that ends the process.
                self._note({"verdict": "killed", "test": name, "why": "the process ends"})
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=(*after, None)[0])
            if first_failure and self.first:
                break

    def _note(self, verdict: dict[str, Any]) -> None:
        self.verdict.write_text(json.dumps(verdict))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.first:
            self.first = report.nodeid
            verdict = "timed out" if "from pytest-timeout" in report.longreprtext else "killed"
            last = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
            why = " ".join(last[0][1:].split())[:200] if last else ""
            self._note({"verdict": verdict, "test": report.nodeid, "why": why})


class _Recorded:
    """A plugin of pytest: each test's tier, seconds, outcome, and the functions that it calls."""

    def __init__(self, folder: Path, tier: int, items: list[pytest.Item]) -> None:
        self.now, self.log = folder / "now", folder / "calls"
        self.rows: dict[str, dict[str, Any]] = {}
        self.wide: dict[str, list[str]] = {}
        self._begin("")
        self.log.write_text("")
        self.log.chmod(0o666)
        for item in items:
            fixtures = [f[-1] for f in item._fixtureinfo.name2fixturedefs.values()]  # type: ignore[attr-defined]
            self.wide[item.nodeid] = [f.argname for f in fixtures if f.scope != "function"]
            self.rows[item.nodeid] = {"tier": tier, "seconds": 0.0, "good": True}

    def _begin(self, name: str) -> None:
        self.now.write_text(name)
        importlib.import_module("mutant_calls").seen.clear()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._begin(nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """What a fixture of several tests calls is called for each of them."""
        if fixturedef.scope == "function":
            return (yield)
        before = self.now.read_text()
        self._begin("fixture " + fixturedef.argname)
        try:
            return (yield)
        finally:
            self._begin(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = self.rows[report.nodeid]
        row["seconds"] = round(row["seconds"] + report.duration, 3)
        row["good"] &= not report.failed

    def rows_with_calls(self) -> Iterator[dict[str, Any]]:
        called = defaultdict[str, set[str]](set)
        for line in self.log.read_text().splitlines():
            name, _, function = line.partition("\t")
            called[name].add(function)
        for test, row in self.rows.items():
            names = [test, *("fixture " + name for name in self.wide[test])]
            yield {"test": test, **row, "calls": sorted(set().union(*(called[n] for n in names)))}


def forked(work: Callable[[], Any], seconds: float) -> int | None:
    """Do some work in a fork; its exit status, None where time ended. Ends all that it leaves."""
    child = os.fork()
    if not child:
        status = 3
        try:
            os.setsid()
            status = int(work() or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    waiting = select.poll()
    waiting.register(ending := os.pidfd_open(child), select.POLLIN)
    ended = bool(waiting.poll(seconds * 1000))
    os.close(ending)
    if not ended:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    end_children()
    return status if ended else None


def end_children() -> None:
    """Kill what this process has for children, orphans of its own included."""
    while children := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        for child in children:
            os.kill(int(child), signal.SIGKILL)
            os.waitpid(int(child), 0)


def run_file(folder: Path, plugin: _Tests) -> int:
    """Run pytest for a file's tests of one tier, in this process."""
    ctypes.CDLL(None).prctl(36, 1)  # Orphans of tests become children of this process.
    with (folder / "output").open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    importlib.import_module("tests.support.fork_helpers").fork_helpers()
    options = ["-Wignore::pytest.PytestAssertRewriteWarning", "-q", "--tb=short"]
    options += ["-p", "no:cacheprovider", "-p", "no:xdist", "--cluster=without"]
    options += [f"--tier={plugin.tier}", f"--from-tier={plugin.tier}"]
    return int(pytest.main([*options, f"--basetemp={folder / 'tmp'}", plugin.name], [plugin]))


@contextlib.contextmanager
def swapped(path: Path, text: str) -> Iterator[None]:
    """A source with another text, and a time of its own that no bytecode is kept for."""
    source, was = path.read_bytes(), path.stat().st_mtime_ns
    path.write_text(text)
    stamp = next(_STAMPS)
    os.utime(path, (stamp, stamp))
    try:
        yield
    finally:
        path.write_bytes(source)
        os.utime(path, ns=(was, was))


_STAMPS = itertools.count(int(time.time()) // 2)


def _append(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with path.open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def _append_row(folder: Path, mutant: Mutant, name: str, tier: int, row: dict[str, Any]) -> None:
    _append(folder / "results", [asdict(mutant) | {"file": name, "tier": tier} | row])


def _rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _is_of(row: dict[str, Any], name: str, tier: int) -> bool:
    return bool(row["test"].partition("::")[0] == name and row["tier"] == tier)


KILLED = ("killed", "timed out", "not imported")


def alive(
    folder: Path, chosen: list[tuple[Mutant, str]], name: str, tier: int
) -> Iterator[tuple[Mutant, str, float]]:
    """Mutants that no test has killed and this file's tests have not been tried with.

    Each with the file's text and the seconds of recorded tests that it has survived.
    """
    rows = defaultdict[str, list[dict[str, Any]]](list)
    for row in _rows_of(folder / "results"):
        rows[row["key"]].append(row)
    for mutant, text in chosen:
        tried = rows[mutant.key]
        dead = any(row["verdict"] in KILLED for row in tried) or mutant.key in equivalents()
        if not dead and not any((row["file"], row["tier"]) == (name, tier) for row in tried):
            spent = [
                r["recorded"] for r in tried if (r["tier"], r["verdict"]) == (tier, "survived")
            ]
            yield mutant, text, sum(spent)


def callers_of(mutant: Mutant, table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that call the mutant's function; of what no function holds, any in the class or file.

    What is quick and calls little comes first.
    """
    name, recorded = f"{mutant.path}:{mutant.function}", _functions_in(mutant.path)
    while name not in recorded and "." in name.partition(":")[2]:
        name = name.rpartition(".")[0]
    if name not in recorded:  # of a class, or of the file where the class has no functions
        within_class = any(other.startswith(name + ".") for other in recorded)
        name = name + "." if mutant.function and within_class else f"{mutant.path}:"
    open_end = name.endswith((".", ":"))
    found = [
        row
        for row in table
        if any(c.startswith(name) if open_end else c == name for c in row["calls"])
    ]
    return sorted(found, key=lambda r: (r["seconds"] + 0.1) * len(r["calls"]))


@functools.cache
def _functions_in(path: str) -> set[str]:
    """Names of a file's functions that note that they are called."""
    return set(re.findall(r"_mutant_call\('(.*)'\)", recording(path, SOURCES[path])))


SOURCES: dict[str, str] = {}
"""Texts of the rooms' files by path, as they are without notes and mutants."""


def within(tests: list[dict[str, Any]], most: float) -> tuple[list[dict[str, Any]], float]:
    """The first tests that take so many seconds, and their seconds."""
    ends = list(itertools.accumulate(test["seconds"] for test in tests))
    count = sum(end <= most for end in ends)
    return tests[:count], ends[count - 1] if count else 0.0


def try_file(
    folder: Path, name: str, tier: int, chosen: list[tuple[Mutant, str]], most: float
) -> None:
    """Append a row of each mutant that a file's tests of a tier are tried with."""
    begun, before = time.monotonic(), len(_rows_of(folder / "results"))
    known = [row for row in _rows_of(folder / "map") if _is_of(row, name, tier)]
    if known and not any(callers_of(m, known) for m, *_ in alive(folder, chosen, name, tier)):
        return
    plugin = _Tests(folder, name, tier, chosen, most)
    status = forked(partial(run_file, folder, plugin), 3600)
    rows = _rows_of(folder / "results")[before:]
    verdicts = Counter(row["verdict"] for row in rows)
    print(f"{name}: {time.monotonic() - begun:.0f} s, status {status}", dict(verdicts), flush=True)


def try_imported(
    folder: Path, names: list[str], tier: int, chosen: list[tuple[Mutant, str]], most: float
) -> None:
    """Try what is not in functions alone, in processes that have not imported the product yet.

    Where a file of tests cannot be imported with a mutant, and can without, the mutant is killed.
    """
    elsewhere = {r["key"] for r in _rows_of(folder / "results") if r["verdict"] == "elsewhere"}
    table = [row for row in _rows_of(folder / "map") if row["good"] and row["tier"] == tier]
    for mutant, text in (pair for pair in chosen if pair[0].key in elsewhere):
        callers = callers_of(mutant, table)
        for name in dict.fromkeys(row["test"].partition("::")[0] for row in callers):
            of_file = [row for row in callers if _is_of(row, name, tier)]
            key = f"imported {name}"
            spent = next((s for m, _, s in alive(folder, [(mutant, text)], key, tier)), most)
            tests, seconds = within(of_file, most - spent - IMPORT_SECONDS)
            if name in names and tests:
                row = _try_imported(folder, mutant, text, name, tier, tests, seconds)
                if row is not None:
                    row |= {"tests": len(tests), "recorded": round(seconds, 1) + IMPORT_SECONDS}
                    _append_row(folder, mutant, key, tier, row)
                    print(mutant, row, flush=True)


class _Imported(_Tests):
    """A plugin of pytest: runs some tests of a file in this process, until one fails."""

    tests: list[dict[str, Any]]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not session.testsfailed:
            self.items = {item.nodeid: item for item in session.items}
            self._try({}, [test for test in self.tests if test["test"] in self.items])
        return True


def _try_imported(
    folder: Path,
    mutant: Mutant,
    text: str,
    name: str,
    tier: int,
    tests: list[dict[str, Any]],
    seconds: float,
) -> dict[str, Any] | None:
    plugin = _Imported(folder, name, tier, [], 0)
    as_it_is = (ROOT / mutant.path).read_text()
    for source, plugin.tests in ((recording(mutant.path, text), tests), (as_it_is, [])):
        plugin._note({"verdict": "not imported"})
        shutil.rmtree(folder / "tmp", ignore_errors=True)
        with swapped(ROOT / mutant.path, source):
            status = forked(partial(run_file, folder, plugin), 120 + 5 * seconds)
        row: dict[str, Any] = json.loads(plugin.verdict.read_text())
        row |= {"verdict": "timed out"} if status is None else {}
        if source == as_it_is:
            return {"verdict": "not imported"} if row["verdict"] == "survived" else None
        if row["verdict"] != "not imported":
            return row
    return None


def table(chosen: list[tuple[Mutant, str]], results: list[dict[str, Any]]) -> Iterator[str]:
    """What is known of the mutants by room, as markdown, and those that survive."""
    heads = ["mutants", "tried", "killed", "by tier 1", "timed out", "not imported", "equivalent"]
    heads += ["survived"]
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    rows, survivors = defaultdict[str, list[dict[str, Any]]](list), []
    for row in results:
        rows[row["key"]].append(row)
    for mutant, _ in chosen:
        count, tried = counts[mutant.room], rows[mutant.key]
        killed = min((r for r in tried if r["verdict"] in KILLED), key=_tier, default=None)
        count["mutants"] += 1
        count["tried"] += bool(tried)
        if killed is not None:
            count["killed"] += 1
            count["by tier 1"] += killed["tier"] == 1
            count[killed["verdict"]] += killed["verdict"] != "killed"
        elif mutant.key in equivalents():
            count["equivalent"] += 1
        else:
            count["survived"] += bool(tried)
            tests = sum(r["tests"] for r in tried if r["verdict"] == "survived")
            survivors.append(f"- `{mutant.key}` {mutant} ({tests} tests)")
    yield "| room | " + " | ".join(heads) + " |"
    yield "|---" * (len(heads) + 1) + "|"
    for room, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        yield f"| {room} | " + " | ".join(str(count[head]) for head in heads) + " |"
    yield from ["", *survivors]


def _tier(row: dict[str, Any]) -> int:
    return int(row["tier"])


@functools.cache
def equivalents() -> dict[str, str]:
    """Why no test can notice a mutant, by its key."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def _main() -> None:
    parser = argparse.ArgumentParser(description="See the text at the top of this file.")
    parser.add_argument("files", nargs="*", help="of tests, or folders; default: unit, distributed")
    parser.add_argument("--list", action="store_true", help="show what is drawn")
    parser.add_argument("--table", action="store_true", help="show what is known, by room")
    parser.add_argument("--tier", type=int, choices=(1, 2, 3), default=1, help="default 1")
    parser.add_argument("--seed", type=int, default=48)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--keys", nargs="*", help="only these")
    parser.add_argument("--most", type=float, default=600, help="seconds of tests for each")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "mutants")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.resolve()
    if not (options.inside or options.list or options.table):
        folder.mkdir(parents=True, exist_ok=True)
        python, tree = make_copy(folder), folder / "tree"
        again = [*sys.argv[1:], "--inside", f"--folder={folder}"]
        os.chdir(tree)
        os.execve(python, [str(python), "-m", "tools.mutants", *again], os.environ | ENVIRONMENT)
    chosen = drawn(ROOT, options.seed, options.count)
    chosen = [c for c in chosen if not options.keys or c[0].key in options.keys]
    if options.list:
        print(*(f"{mutant.key} {mutant}" for mutant, _ in chosen), sep="\n")
    elif options.table:
        print(*table(chosen, _rows_of(folder / "results")), sep="\n")
    else:
        try_all(folder, test_files(options.files), options.tier, chosen, options.most)


def test_files(named: list[str]) -> list[str]:
    """Files of tests below the root, those in folders in the order of their names."""
    found = []
    for name in named or ("tests/unit", "tests/distributed"):
        path = ROOT / name
        found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
    return [str(path.relative_to(ROOT)) for path in found]


def try_all(
    folder: Path, names: list[str], tier: int, chosen: list[tuple[Mutant, str]], most: float
) -> None:
    """Try mutants with files of tests, in this process's forks; sources here note calls."""
    for room in ROOMS:
        SOURCES.update(files(ROOT, room))
    (folder / "now").write_text("")
    for path, text in SOURCES.items():
        (ROOT / path).write_text(recording(path, text))
    os.setpriority(os.PRIO_PROCESS, 0, 5)
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    status = forked(partial(_try_files, folder, names, tier, chosen, most), 86400)
    if status == 0:
        try_imported(folder, names, tier, chosen, most)


def _try_files(
    folder: Path, names: list[str], tier: int, chosen: list[tuple[Mutant, str]], most: float
) -> None:
    for name in OURS:
        importlib.import_module(name)
    for name in names:
        try_file(folder, name, tier, chosen, most)


if __name__ == "__main__":
    _main()
