"""A hook of mkdocs: links of pages to files beside ``docs/`` go to the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(\]\()(\.\./[^)#]*)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """A page's text as mkdocs takes it."""
    folder = posixpath.dirname(page.file.src_uri)

    def outside(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, link[2]))
        inside = path.startswith("docs/")
        return link[0] if inside else f"{link[1]}{config.repo_url}/blob/main/{path}"

    return _LINK.sub(outside, markdown)
