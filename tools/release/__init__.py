"""A whole release in dist/, and what was seen of each part here; nothing is published.

``make release`` builds and checks the packages, ``make release-try`` installs and runs the wheels
in dist/, and ``make release-check`` does both and sees the images and the chart in a registry of
this machine. The workflow runs the first two and builds images in a job apart.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import ROOT

DIST = ROOT / "dist"
UV = next((str(own) for own in [ROOT / ".cache/uv/bin/uv"] if own.exists()), "uv")
WORKFLOW = "publish.yaml"


class Wrong(Exception):
    """What keeps the release from being one, for people to read."""


@dataclass
class Part:
    """A file of the release, or one that could not be made here, and what is known of it."""

    name: str
    built: str
    seen: list[str] = field(default_factory=list)
    bytes: int = 0
    """Of what is no file in `DIST`: an image's layers as they are pushed."""


def run(*command: str | Path, **env: str) -> str:
    """Standard output and errors of a command in the checkout; `Wrong` with them where it fails."""
    ended = subprocess.run(
        [str(word) for word in command], cwd=ROOT, env=os.environ | env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if ended.returncode:
        words = " ".join(Path(str(word)).name for word in command[:3])
        raise Wrong(f"{words} ended with {ended.returncode}:\n{ended.stdout[-12000:]}")
    return ended.stdout
