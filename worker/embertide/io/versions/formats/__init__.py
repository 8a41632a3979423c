"""The formats of parts: one module for each, with its name, and in it the class that does it all.

protocol.py  what a format does: writing, reading, looking up
parquet.py   one object with ids and vectors
npy.py       an array, and an object with its ids

Another format is a name in ``OutputFormat`` of the manifest, and a module of that name here with
a ``FORMAT``; its parts end in ``.name``.
"""

from __future__ import annotations

from importlib import import_module
from typing import get_args

from embertide.errors import OutputError
from embertide.io.versions.formats.protocol import PartFormat, StoredPart
from embertide.spec.output import OutputFormat

FORMATS: dict[str, PartFormat] = {
    name: import_module(f"{__name__}.{name}").FORMAT for name in get_args(OutputFormat)
}
"""By the names that a manifest has for them."""


def format_of(part: StoredPart) -> PartFormat:
    """The format of a complete part, by the end of its name.

    Raises:
        OutputError: this release does not know it.
    """
    name = part.uri.rpartition(".")[2]
    if name not in FORMATS:
        raise OutputError(
            f"{part.uri} has a format that this release of embertide cannot read; it reads"
            f" {', '.join(FORMATS)}; read the version with the release that wrote it, or later"
        )
    return FORMATS[name]
