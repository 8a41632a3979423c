"""The cases of ``tests/cover.txt``, which together do all that any case does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.support.paths import ROOT

FILE = ROOT / "tests" / "cover.txt"


def needs_dgl(name: str) -> bool:
    """Whether a case has weights of DGL's modules."""
    return name.removeprefix("types ").startswith("dgl ")


def is_typed(name: str) -> bool:
    """Whether a case is of several node types."""
    return name.startswith("types ")


def read_cover() -> dict[str, set[str]]:
    """Name of a case -> the signatures that it adds to those before it."""
    found, name = dict[str, set[str]](), ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            found[name := line] = set()
            continue
        labels, colon, action = line.strip().partition(": ")
        found[name] |= {f"{of}: {action}" for of in labels.split(", ")} if colon else {labels}
    return found


def lines_of(chosen: Mapping[str, set[str]]) -> Iterator[str]:
    """As the file has them: what is the same on grids of several classes is one line."""
    for name, added in chosen.items():
        yield f"{name}\n"
        shared: dict[str, list[str]] = {}
        for signature in sorted(added):
            label, colon, action = signature.partition(": ")
            shared.setdefault(action if colon else label, []).extend([label] if colon else [])
        for action, labels in shared.items():
            yield f"    {', '.join(labels)}{': ' if labels else ''}{action}\n"
