"""The key of kept layers: what of a job, and which inputs, layers are computed from.

The other half of what is computed, the steps and their weights, is in each layer's name
(:func:`embertide.program.plans.boundaries.boundary_digest`). The grid is in neither.
"""

from __future__ import annotations

from embertide._version import __version__
from embertide.engine.planning.inputs import Inputs, with_tables
from embertide.spec.identity import digest_of
from embertide.spec.job_digest import job_digest
from embertide.spec.manifest import EmbeddingJob


def layer_key(job: EmbeddingJob, inputs: Inputs) -> str:
    """32 hexadecimal digits of the release, the job, the objects of its inputs with sizes and
    ETags, and the versions of its tables.

    A model's tables are inputs here, whether or not the job has them as features already; its
    weights are in the layers' names.
    """
    parts = {
        "release": __version__,
        "job": job_digest(with_tables(job, inputs.model_tables)),
        "device": job.spec.workers.device,
        "objects": inputs.of_layers(),
        "tables": inputs.tables,
    }
    return digest_of(parts)
