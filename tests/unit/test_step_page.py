"""docs/program.md is what the steps say."""

from __future__ import annotations

from tools.pages.program import PAGE, page


def test_the_page_is_what_the_steps_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.pages.program"
