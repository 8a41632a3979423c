"""A page of Markdown with its figures."""

from __future__ import annotations

from pathlib import Path


class Page:
    """Markdown text, and its figures as files beside it."""

    def __init__(self, path: Path, title: str, figures: Path) -> None:
        self.path, self._parts = path, [title]
        self._figures = figures

    def add(self, text: str) -> None:
        """A paragraph, a heading or a table."""
        self._parts.append(text)

    def draw(self, name: str, alternative: str, svg: str) -> None:
        """A figure."""
        self._figures.mkdir(parents=True, exist_ok=True)
        (self._figures / f"{name}.svg").write_text(svg)
        figure = (self._figures / f"{name}.svg").relative_to(self.path.parent)
        self.add(f"![{alternative}]({figure.as_posix()})")

    def write(self) -> None:
        """Write the page."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("\n\n".join(self._parts) + "\n")
