"""What a job with a built-in model reads: columns that are drawn by the ids of nodes."""

from __future__ import annotations

from embertide.kernels.drawn import seed_of
from embertide.readers.drawn import IdsAlone
from embertide.readers.feature_schema import Drawn
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.nodes import NodeInput


def drawn_of(job: EmbeddingJob, node: NodeInput) -> Drawn | None:
    """The columns of a node type that are drawn, after those of its features.

    Args:
        node: as the manifest has it.
    """
    if job.spec.model.builtin != "fastrp":
        return None
    options = job.spec.model.fastrp
    featured = node.features is not None and not isinstance(node.features, IdsAlone)
    columns = options.dimensions - options.projected(featured=featured)
    return Drawn(columns, seed_of(options.seed, node.name)) if columns else None
