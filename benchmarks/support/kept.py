"""Result files that grow by a case at a time, so that a command which is cut off can go on."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from benchmarks.support.rounds import RESULTS, Run, save, where

T = TypeVar("T")

_SAME = ("processor", "cores", "memory_bytes", "system", "commit")
"""What must not have changed between the cases of one file."""


class Kept:
    """The cases of one command, written to its JSON file after each of them.

    Args:
        name: of the file in ``benchmarks/results``, unless ``out`` says another.
        about: what all cases have in common.
        resume: go on with a file that was begun with the same ``about``, on this machine and at
            this commit; any other file is begun anew.
        minutes: measure no case after so many; ``None`` has no end.
    """

    def __init__(
        self,
        name: str,
        about: Run,
        *,
        out: Path | None = None,
        resume: bool = False,
        minutes: float | None = None,
    ) -> None:
        self._name, self._out, self._about = name, out, about
        self._stop = None if minutes is None else time.monotonic() + 60 * minutes
        path = out or RESULTS / f"{name}.json"
        begun = json.loads(path.read_text()) if resume and path.exists() else {}
        if not (of_now(begun) and about.items() <= begun.items()):
            begun = {}
        self.machine: Run = begun.get("machine", {})
        self.cases: list[Run] = begun.get("cases", [])

    def missing(self, cases: Iterable[T], key_of: Callable[[T], Run]) -> Iterator[T]:
        """Those that are not in the file, one by one, for as long as there is time."""
        for case in cases:
            key = key_of(case)
            words = ", ".join(f"{name} {value}" for name, value in key.items())
            if any(key.items() <= there.items() for there in self.cases):
                print(f"  {words}: measured before", file=sys.stderr)
            elif self._stop is not None and time.monotonic() > self._stop:
                print(f"  {words}: no time left", file=sys.stderr)
            else:
                yield case

    def limits(self, measure: Callable[[], Run]) -> None:
        """Measure what the machine can do, unless the file has it."""
        self.machine = self.machine or measure()

    def add(self, case: Run) -> None:
        """Keep a case, and write the file."""
        self.cases.append(case)
        found = {"machine": self.machine, **self._about, "cases": self.cases}
        save(self._name, found, self._out)


def add_arguments(parser: ArgumentParser) -> None:
    """What is asked of every command that keeps its cases, and makes data sets."""
    parser.add_argument("--work", type=Path, help="where data sets are kept between calls")
    parser.add_argument("--out", type=Path, help="the JSON file; default benchmarks/results")
    parser.add_argument("--resume", action="store_true", help="measure what the file lacks")
    parser.add_argument("--minutes", type=float, help="start no case after that")


def of_now(results: Run) -> bool:
    """Whether a file's results were measured on this machine and at this commit."""
    before, now = results.get("where", {}), where()
    return all(before.get(key) == now[key] for key in _SAME)
