"""Mutants: small faults in the product's code, drawn by a seed, that a test should notice each.

    python -m tools.mutants --list               # the 200 of a seed
    python -m tools.mutants --record             # which test calls which function, and its seconds
    python -m tools.mutants --tier 2             # try them: killed by which test, or survived
    python -m tools.mutants --table              # what is known, by room, as markdown

They are tried in a copy of the commit with an environment of its own (``--folder``), one after the
other, by the tests that called the function when recorded, those of tier 1 first. Each row is
appended to a file there, and a run goes on where it was. ``mutants.toml`` names those that no test
can notice, with reasons.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import itertools
import json
import os
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

from tools.mutations import ROOMS, Mutant, drawn, files, put_in, recording

ROOT = Path(__file__).resolve().parents[1]
PRELOADED = (
    "torch", "torch_geometric", "dgl", "pandas", "pyarrow.parquet", "scipy.sparse", "boto3",
    "hypothesis", "kubernetes", "kopf", "pydantic", "typer", "safetensors.torch",
)  # fmt: skip
"""What tests import of others, once for all mutants,"""
OURS = ("embertide.launch.worker", "embertide.cli", "embertide.check", "embertide_operator.runtime")
"""and what they import of ours, where a mutant can be put into functions that are imported."""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "OPENBLAS_NUM_THREADS": "1",
    "TRITON_INTERPRET": "1",
    "PYTHONDONTWRITEBYTECODE": "",
}
ELSEWHERE = 77
"""The exit status where a mutant is not in functions alone."""
WAVES = (2, 6)
"""So many files of tests run first, then so many, then the others: most mutants die early."""

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


# The process that has imported other people's packages, forked for each mutant.


class _Recorded:
    """A plugin of pytest: each test's tier, seconds, outcome, and the functions that it calls."""

    def __init__(self, folder: Path) -> None:
        self.now, self.log = folder / "now", folder / "calls"
        self.rows: dict[str, dict[str, Any]] = {}
        self.wide: dict[str, list[str]] = {}
        self._begin("")
        self.log.write_text("")
        self.log.chmod(0o666)

    def _begin(self, name: str) -> None:
        self.now.write_text(name)
        importlib.import_module("mutant_calls").seen.clear()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._begin(nodeid)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        tier_of = importlib.import_module("tests.support.tiers").tier_of
        for item in session.items:
            fixtures = [f[-1] for f in item._fixtureinfo.name2fixturedefs.values()]  # type: ignore[attr-defined]
            self.wide[item.nodeid] = [f.argname for f in fixtures if f.scope != "function"]
            self.rows[item.nodeid] = {"tier": tier_of(item)[0], "seconds": 0.0, "good": True}

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
        row["good"] &= report.passed

    def table(self) -> Iterator[dict[str, Any]]:
        called = defaultdict[str, set[str]](set)
        for line in self.log.read_text().splitlines():
            name, _, function = line.partition("\t")
            called[name].add(function)
        for test, row in self.rows.items():
            names = [test, *("fixture " + name for name in self.wide[test])]
            yield {"test": test, **row, "calls": sorted(set().union(*(called[n] for n in names)))}


class _Chosen:
    """A plugin of pytest: runs these tests in this order, and notes the first that fails."""

    def __init__(self, folder: Path, tests: list[dict[str, Any]]) -> None:
        self.verdict = folder / "verdict"
        self.tests = {test["test"]: (at, test) for at, test in enumerate(tests)}
        self._note({"verdict": "killed", "test": "what is imported", "tier": tests[0]["tier"]})

    def _note(self, verdict: dict[str, Any]) -> None:
        self.verdict.write_text(json.dumps(verdict))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.tests]
        items.sort(key=lambda item: self.tests[item.nodeid][0])
        for item in items:
            item.add_marker(pytest.mark.timeout(30 + 10 * self.tests[item.nodeid][1]["seconds"]))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Until it ends, it is the one that does not."""
        self._note({"verdict": "timed out", "test": nodeid, "tier": self.tests[nodeid][1]["tier"]})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            verdict = "timed out" if "from pytest-timeout" in report.longreprtext else "killed"
            test = self.tests[report.nodeid][1]
            last = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
            why = " ".join(last[0][1:].split())[:200] if last else ""
            self._note(
                {"verdict": verdict, "test": report.nodeid, "tier": test["tier"], "why": why}
            )


def run_tests(
    folder: Path, names: Iterable[str], tier: int, plugin: Callable[[], Any], seconds: float
) -> int | None:
    """Run files of tests in a fork of this process; its exit status, None where time ended.

    Ends all that it leaves behind.
    """
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder / "tmp")
    child = os.fork()
    if not child:
        status = 3
        try:
            os.setsid()
            with (folder / "output").open("wb") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            importlib.import_module("tests.support.fork_helpers").fork_helpers()
            made = plugin()
            options = ["-Wignore::pytest.PytestAssertRewriteWarning", "-q", "--tb=short"]
            options += ["-p", "no:cacheprovider", "-p", "no:xdist", "--cluster=without"]
            options += [f"--tier={tier}", f"--basetemp={folder / 'tmp'}"]
            options += ["-x"] if isinstance(made, _Chosen) else []
            status = int(pytest.main([*options, *names], plugins=[made]))
            if isinstance(made, _Recorded):
                _append(folder / "map", made.table())
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


def _append(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def _rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def record(folder: Path, names: list[str], tier: int) -> None:
    """Run files of tests with functions that note their calls, but those that are known."""
    known = {row["test"].partition("::")[0] for row in _rows_of(folder / "map")}
    for path, text in (pair for room in ROOMS for pair in files(ROOT, room).items()):
        (ROOT / path).write_text(recording(path, text))
    try:
        for name in (name for name in names if name not in known):
            begun = time.monotonic()
            status = run_tests(folder, [name], tier, lambda: _Recorded(folder), 1200)
            print(f"{name}: {time.monotonic() - begun:.0f} s, status {status}", flush=True)
    finally:
        subprocess.run(["git", "checkout", "-q", "."], cwd=ROOT, check=True)


def callers_of(mutant: Mutant, table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that call the mutant's function; of what no function holds, any in the class or file.

    What is quick and calls little comes first, within a tier.
    """
    name = f"{mutant.path}:{mutant.function}"
    while True:
        within = name if name.endswith(":") else f"{name}."
        found = [r for r in table if any(c == name or c.startswith(within) for c in r["calls"])]
        if found or name.endswith(":"):
            return sorted(found, key=lambda r: (r["tier"], (r["seconds"] + 0.1) * len(r["calls"])))
        name = name.rpartition(".")[0] or f"{mutant.path}:"


def waves_of(tests: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Tests of one tier in runs of some files each, the likeliest first."""
    names = list(dict.fromkeys(test["test"].partition("::")[0] for test in tests))
    for start, end in itertools.pairwise([0, *itertools.accumulate(WAVES), len(names)]):
        chosen = set(names[start:end])
        if wave := [test for test in tests if test["test"].partition("::")[0] in chosen]:
            yield wave


def attempt(
    folder: Path, mutant: Mutant, text: str, tests: list[dict[str, Any]], imported: bool
) -> dict[str, Any] | None:
    """The verdict of these tests; None where the mutant cannot be put into what is imported."""
    path, begun = ROOT / mutant.path, time.monotonic()
    source = path.read_bytes()

    def chosen(wave: list[dict[str, Any]]) -> _Chosen:
        if imported and not put_in(path, source.decode(), text):
            os._exit(ELSEWHERE)
        return _Chosen(folder, wave)

    verdict: dict[str, Any] = {"verdict": "survived", "tests": len(tests)}
    path.write_text(text)
    try:
        for tier, group in itertools.groupby(tests, lambda test: test["tier"]):
            for wave in waves_of(list(group)):
                names = dict.fromkeys(test["test"].partition("::")[0] for test in wave)
                limit = 120 + 20 * len(names) + 10 * sum(test["seconds"] for test in wave)
                status = run_tests(folder, names, tier, partial(chosen, wave), limit)
                if status == ELSEWHERE:
                    return None
                if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                    verdict = json.loads((folder / "verdict").read_text())
                    break
            if verdict["verdict"] != "survived":
                break
        return verdict | {"seconds": round(time.monotonic() - begun, 1)}
    finally:
        path.write_bytes(source)


def try_mutants(
    folder: Path, chosen: list[tuple[Mutant, str]], tier: int, most: float, imported: bool
) -> bool:
    """Append a row of each that was not killed before, nor survived as many tiers.

    Returns whether some are left to a process that has not imported what they are in.
    """
    table = [r for r in _rows_of(folder / "map") if r["good"] and r["tier"] <= tier]
    table = [r for r in table if (ROOT / r["test"].partition("::")[0]).exists()]
    known, left = {row["key"]: row for row in _rows_of(folder / "results")}, False
    for at, (mutant, text) in enumerate(chosen):
        row = known.get(mutant.key, {})
        if row.get("verdict") in ("killed", "timed out") or row.get("of", 0) >= tier:
            continue
        tests, spent = [], 0.0
        for test in callers_of(mutant, table):
            if (spent := spent + test["seconds"]) <= most and test["tier"] > row.get("of", 0):
                tests.append(test)
        verdict = attempt(folder, mutant, text, tests, imported)
        if verdict is None:
            left = True
            continue
        _append(folder / "results", [asdict(mutant) | {"of": tier} | verdict])
        print(at, mutant, "|", *(f"{k}={v}" for k, v in verdict.items()), flush=True)
    return left


def table(chosen: list[tuple[Mutant, str]], results: list[dict[str, Any]]) -> Iterator[str]:
    """What is known of the mutants by room, as markdown, and those that survive."""
    rows = {row["key"]: row for row in results}
    reasons = equivalents()
    heads = ("mutants", "tried", "killed", "by tier 1", "timed out", "equivalent", "survived")
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    survivors = []
    for mutant, _ in chosen:
        row, count = rows.get(mutant.key), counts[mutant.room]
        count["mutants"] += 1
        if row is None:
            continue
        count["tried"] += 1
        if row["verdict"] != "survived":
            count["killed"] += 1
            count["by tier 1"] += row["tier"] == 1
            count["timed out"] += row["verdict"] == "timed out"
        elif mutant.key in reasons:
            count["equivalent"] += 1
        else:
            count["survived"] += 1
            survivors.append(f"- `{mutant.key}` {mutant} ({row['tests']} tests)")
    yield "| room | " + " | ".join(heads) + " |"
    yield "|---" * (len(heads) + 1) + "|"
    for room, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        yield f"| {room} | " + " | ".join(str(count[head]) for head in heads) + " |"
    yield from ["", *survivors]


def equivalents() -> dict[str, str]:
    """Why no test can notice a mutant, by its key."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def _main() -> None:
    parser = argparse.ArgumentParser(description="See the text at the top of this file.")
    parser.add_argument("--list", action="store_true", help="show what is drawn")
    parser.add_argument("--table", action="store_true", help="show what is known, by room")
    parser.add_argument("--record", nargs="*", metavar="FILE", help="of tests; default: all")
    parser.add_argument(
        "--tier", type=int, choices=(1, 2, 3), default=2, help="of tests; default 2"
    )
    parser.add_argument("--seed", type=int, default=48)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, help="only so many of them, in their order")
    parser.add_argument("--keys", nargs="*", help="only these")
    parser.add_argument(
        "--most", type=float, default=600, help="seconds of recorded tests for each"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "mutants")
    parser.add_argument("--cold", action="store_true", help="import ours for each mutant")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.resolve()
    if not (options.inside or options.list or options.table):
        folder.mkdir(parents=True, exist_ok=True)
        python, tree = make_copy(folder), folder / "tree"
        again = [*sys.argv[1:], "--inside", f"--folder={folder}"]
        os.chdir(tree)
        os.execve(python, [str(python), "-m", "tools.mutants", *again], os.environ | ENVIRONMENT)
    if options.record is None:
        chosen = drawn(ROOT, options.seed, options.count)[: options.first]
        chosen = [c for c in chosen if not options.keys or c[0].key in options.keys]
    if options.list:
        print(*(f"{mutant.key} {mutant}" for mutant, _ in chosen), sep="\n")
    elif options.table:
        print(*table(chosen, _rows_of(folder / "results")), sep="\n")
    else:
        os.setpriority(os.PRIO_PROCESS, 0, 10)
        ctypes.CDLL(None).prctl(36, 1)  # Orphans of tests become children of this process.
        imported = not options.cold and options.record is None
        for name in (*PRELOADED, *(OURS if imported else ())):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        if options.record is None:
            if try_mutants(folder, chosen, options.tier, options.most, imported):
                again = [sys.executable, "-m", "tools.mutants", *sys.argv[1:], "--cold"]
                os.execv(sys.executable, again)
        else:
            every = (str(p.relative_to(ROOT)) for p in sorted((ROOT / "tests").glob("*/test_*.py")))
            record(folder, options.record or list(every), options.tier)


if __name__ == "__main__":
    _main()
