"""Embertide keeps graph embeddings fresh: exact, distributed all-node GNN inference.

From Python::

    import embertide

    ids, vectors = embertide.read("embeddings").to_numpy()        # the current version
    table = embertide.read("s3://shop/embeddings").table          # a pyarrow.Table
    frame = embertide.read("embeddings", "20261121T041922Z-3fa9c1").to_pandas()

    embertide.list_versions("embeddings")     # what is published
    embertide.neighbors("embeddings", 42)     # the nearest embeddings
    embertide.plan("job.yaml", grid="2x2")    # what a run would read, hold and send
    embertide.run("job.yaml")                 # compute and publish
    embertide.export(module, "model")         # your trained module, as it is

Names are imported when they are first used: importing this package takes no library and no
time, and reading takes no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from embertide._version import __version__ as __version__

if TYPE_CHECKING:
    from embertide.api import (
        export,
        list_versions,
        neighbors,
        plan,
        read,
        read_delta,
        read_scores,
        run,
    )
    from embertide.errors import EmbertideError
    from embertide.facts.telemetry.estimate import Estimate
    from embertide.facts.telemetry.report import RunReport
    from embertide.io.versions.catalog import VersionInfo
    from embertide.io.versions.deltas import Changes
    from embertide.io.versions.embeddings import Embeddings
    from embertide.spec.grid import GridShape
    from embertide.spec.manifest import EmbeddingJob

__all__ = [
    "Changes",
    "EmbeddingJob",
    "Embeddings",
    "EmbertideError",
    "Estimate",
    "GridShape",
    "RunReport",
    "VersionInfo",
    "export",
    "list_versions",
    "neighbors",
    "plan",
    "read",
    "read_delta",
    "read_scores",
    "run",
]

_MODULES = {
    "Changes": "embertide.io.versions.deltas",
    "EmbeddingJob": "embertide.spec.manifest",
    "Embeddings": "embertide.io.versions.embeddings",
    "EmbertideError": "embertide.errors",
    "Estimate": "embertide.facts.telemetry.estimate",
    "GridShape": "embertide.spec.grid",
    "RunReport": "embertide.facts.telemetry.report",
    "VersionInfo": "embertide.io.versions.catalog",
    **dict.fromkeys(
        (
            "export",
            "list_versions",
            "neighbors",
            "plan",
            "read",
            "read_delta",
            "read_scores",
            "run",
        ),
        "embertide.api",
    ),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
