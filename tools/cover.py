"""The cover: few cases that do all that any case of the catalogue does.

``python -m tools.cover`` writes ``tests/cover.txt``, which ``tests/unit/test_cover.py`` compares
with the catalogue: a change that gives plans another operation needs a case for it there.
"""

from __future__ import annotations

from collections.abc import Mapping

from embertide.program.steps import Program
from tests.support.catalogue import catalogue
from tests.support.cover import FILE, lines_of, needs_dgl
from tests.support.hetero_programs import typed_catalogue
from tests.support.signatures import cover, signatures


def covered(programs: Mapping[str, Program]) -> dict[str, set[str]]:
    """Cases and what each adds, those of DGL only for what no other does."""
    found = {name: signatures(program) for name, program in programs.items()}
    costs = {name: 10.0 + len(program.steps) for name, program in programs.items()}
    plain = {name: own for name, own in found.items() if not needs_dgl(name)}
    had = set[str]().union(*plain.values())
    other = {name: own - had for name, own in found.items() if name not in plain}
    return cover(plain, costs) | cover(other, costs)


def main() -> None:
    """Write the file."""
    models = {name: case.program for name, case in catalogue().items()}
    chosen = covered(models) | covered(typed_catalogue())
    FILE.write_text("".join(lines_of(chosen)), encoding="utf-8")
    print(f"{FILE}: {len(chosen)} cases")


if __name__ == "__main__":
    main()
