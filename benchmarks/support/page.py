"""A page of Markdown with its figures."""

from __future__ import annotations

from pathlib import Path


class Page:
    """Markdown text, and its figures as files beside it."""

    def __init__(self, path: Path, title: str) -> None:
        self.path, self._parts = path, [title]
        self._figures = path.parent / path.stem

    def add(self, text: str) -> None:
        """A paragraph, a heading or a table."""
        self._parts.append(text)

    def draw(self, name: str, alternative: str, svg: str) -> None:
        """A figure."""
        self._figures.mkdir(parents=True, exist_ok=True)
        (self._figures / f"{name}.svg").write_text(svg)
        self.add(f"![{alternative}]({self._figures.name}/{name}.svg)")

    def write(self) -> None:
        """Write the page."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("\n\n".join(self._parts) + "\n")
