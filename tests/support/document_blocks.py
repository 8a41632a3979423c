"""The code blocks of the documents, by language, with where they stand.

``sh`` blocks are commands that run as they are, here or on the test cluster; blocks without a
language are shown only, and every command among them is run elsewhere or left out with a reason
(``tests/unit/test_documents.py``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from tests.support.paths import ROOT

WITHOUT_CLUSTER = ("docs/publishing.md",)
"""Pages whose ``sh`` blocks run in the repository."""

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A code block; ``line`` is that of its first line, from 1."""

    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def file(self) -> str:
        """The file that it is, which its first line names (``# job.yaml``); "" for none."""
        found = re.match(r"# (\w[\w-]*\.(?:py|yaml))\n", self.text)
        return found[1] if found else ""

    @property
    def shown(self) -> list[tuple[str, str]]:
        """Commands after ``$`` of a ``console`` block, each with what stands below it."""
        if self.language != "console":
            return []
        return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", self.text, re.MULTILINE)

    @property
    def commands(self) -> list[str]:
        """Its lines, continued ones joined, without comments and empty ones."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        lines = (re.sub(r"(^|\s+)#.*", "", line).strip() for line in joined.splitlines())
        return [line for line in lines if line]


def blocks(document: str, language: str | None = None) -> list[Block]:
    """A document's blocks in order; of one language, "" for none, or of all."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found = [
        Block(document, text.count("\n", 0, match.start(2)) + 1, match[1], match[2])
        for match in BLOCK.finditer(text)
    ]
    return [block for block in found if language in (None, block.language)]


def documents() -> list[str]:
    """README and the pages of ``docs/``."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in pages]


def job_parts() -> list[tuple[Block, dict[str, Any]]]:
    """Every yaml block that is a part of a job's spec, such as ``workers: ...``, parsed."""
    found = []
    for document in documents():
        for block in blocks(document, "yaml"):
            part = yaml.safe_load(block.text)
            if isinstance(part, dict) and set(part) <= {"workers", "storage", "inference"}:
                found.append((block, part))
    return found


def chart_values() -> list[tuple[Block, dict[str, Any]]]:
    """Every yaml block that begins with ``# values.yaml``, parsed."""
    found = [block for document in documents() for block in blocks(document, "yaml")]
    marked = [block for block in found if block.text.startswith("# values.yaml\n")]
    return [(block, yaml.safe_load(block.text)) for block in marked]
