"""Where programs and images that tests build are kept: once for all checkouts of a user."""

from __future__ import annotations

import os
from pathlib import Path


def _folder() -> Path:
    given = os.environ.get("EMBERTIDE_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "embertide"


# Without symbolic links: kubelet looks its folders up in the list of mounts.
SHARED_CACHE = _folder().resolve()
