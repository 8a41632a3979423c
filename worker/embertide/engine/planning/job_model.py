"""The model of a job: what was trained, or what is made for the job."""

from __future__ import annotations

from embertide.engine.planning.inputs import Inputs
from embertide.io.storage.protocol import Storage
from embertide.models.builtin import NodeColumns, builtin_model
from embertide.models.read import ExportedModel, Model, read_files
from embertide.spec.manifest import EmbeddingJob


def read_job_model(storage: Storage, job: EmbeddingJob, inputs: Inputs) -> Model:
    """Read the files of the job's model, or make the program of a built-in one.

    Raises:
        ObjectMissing: there is neither ``program.yaml`` nor ``model.yaml``, or no file that it
            names.
        ModelError: with every problem of the text, or where the weights cannot be read; or the
            built-in model does not fit the graph.
    """
    model, data = job.spec.model, job.spec.input
    if model.uri is not None:
        return read_files(storage, model.uri)
    columns = {
        node.name if data.several else "": NodeColumns(
            0 if schema is None else schema.stored,
            schema.drawn.columns if schema is not None and schema.drawn is not None else 0,
        )
        for node in data.nodes
        for schema in (inputs.by_nodes[node.name].schema,)
    }
    return ExportedModel(builtin_model(model, columns, data.relations))
