"""``python -m tools.release STEP...``; 1 where something is wrong."""

from __future__ import annotations

import argparse
import sys

from rich import box
from rich.console import Console
from rich.table import Table

import tools.release
from tools.release import DIST, Part, Wrong
from tools.release.images import publish
from tools.release.packages import build_release, try_wheels


def show(parts: list[Part]) -> None:
    """The table: what there is, how large, what was seen of it."""
    table = Table("part", "built", "MB", "seen", box=box.SIMPLE)
    for part in parts:
        path = DIST / part.name
        size = path.stat().st_size if path.exists() else part.bytes
        table.add_row(part.name, part.built, f"{size / 1e6:.2f}" * (size > 0), "; ".join(part.seen))
    Console(width=160).print(table)


def main() -> int:
    """The steps that are named; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=tools.release.__doc__)
    parser.add_argument("steps", nargs="+", choices=["build", "try", "images"])
    parser.add_argument("--tag", default="", help="the version that is released: v0.1.0")
    given = parser.parse_args()
    parts: list[Part] = []
    try:
        if "build" in given.steps:
            parts = build_release(given.tag)
        if "try" in given.steps:
            try_wheels(parts)
        if "images" in given.steps:
            publish(parts)
    except (Wrong, RuntimeError) as error:
        print(f"[release] {error}", file=sys.stderr)
        return 1
    show(parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
