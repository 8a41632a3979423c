"""Where kept layers lie, and what their objects are called.

    _layers/<key>/<name>.seal.json             makes a layer complete: which blocks it has
    _layers/<key>/blocks/<version>/<block>     rows of a tensor, written by the attempt <version>
    _layers/<key>/attempts/<version>.json      the attempt may be reading or writing

The key is a digest of what is computed and from what, the name one of the steps up to the layer and
of their weights. Digests of rows are sealed as layers are, by a digest of how the rows were
computed. A seal may have blocks in the folders of earlier keys. Folders that begin with ``_`` are
no data: readers of an output skip them.
"""

from __future__ import annotations

import re

FOLDER = "_layers"
SEAL = ".seal.json"
_KEY = re.compile(r"[0-9a-f]{32}")


def layers_uri(output_uri: str) -> str:
    """The folder of all kept layers of an output."""
    return f"{output_uri.rstrip('/')}/{FOLDER}"


def key_uri(output_uri: str, key: str) -> str:
    """The folder of the layers with one key."""
    return f"{layers_uri(output_uri)}/{key}"


def is_key(name: str) -> bool:
    """Whether a folder's name is a key."""
    return _KEY.fullmatch(name) is not None


def seal_uri(output_uri: str, key: str, name: str) -> str:
    """The object that makes a layer complete."""
    return f"{key_uri(output_uri, key)}/{name}{SEAL}"


def block_path(version: str, name: str, tensor: int, rank: int, number: int) -> str:
    """A block's path below the folder of its key."""
    return f"blocks/{version}/{name}-{tensor:03}-{rank:05}-{number:06}"


def attempt_uri(output_uri: str, key: str, version: str) -> str:
    """The object that says that an attempt is running."""
    return f"{key_uri(output_uri, key)}/attempts/{version}.json"
