"""How a run ends that would compute the current version again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embertide.io.versions.catalog import VersionInfo


class Confirmed(Exception):
    """The current version is what the run would compute.

    Attributes:
        version: the current version.
    """

    def __init__(self, version: VersionInfo) -> None:
        super().__init__(version.version)
        self.version = version
