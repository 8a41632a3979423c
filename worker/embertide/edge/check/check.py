"""A job's model compared with the user's own vectors, in this process; nothing is published.

One rank reads and computes, by the same stages as a run. Where the embeddings differ, small
changes of the description are tried on the same graph, and the first layer that can differ named.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from embertide.context import RunContext
from embertide.edge.check.alternatives import Change
from embertide.edge.check.comparison import Check, prepare_check
from embertide.edge.check.data_cause import find_cause
from embertide.edge.check.data_files import DataFiles
from embertide.edge.check.diagnose import Difference, Tried, first_difference
from embertide.edge.check.samples import read_samples
from embertide.engine.planning.inputs import Inputs, list_inputs, with_tables
from embertide.engine.planning.matching import (
    check_model,
    chosen_result,
    match_types,
    narrow,
    read_job_model,
)
from embertide.engine.planning.readiness import describe, missing_inputs
from embertide.engine.stages.verify import Agreement
from embertide.errors import InputError, InputsNotReady
from embertide.facts.telemetry.omissions import Omissions
from embertide.facts.telemetry.progress import OnProgress, Progress
from embertide.facts.telemetry.recorder import NullRecorder
from embertide.graph.exchange import Exchange
from embertide.grid import Grid
from embertide.io.readers.reference import ReferenceColumns, split_reference
from embertide.io.readers.splits import Split
from embertide.io.readers.table_formats import FoldersAbove
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.models.folder import UNTRAINED, untrained_norms
from embertide.models.read import (
    ExportedModel,
    Model,
    ModelFiles,
    read_untrained_norms,
)
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.nodes import NodeInput
from embertide.spec.result_names import name_of, node_type_of


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of a check.

    Attributes:
        node_type: whose embeddings are compared; "" where the graph has one type.
        agreement: None where the reference's vectors have another width than the model's.
        difference: which changes make it agree; None where it agrees, or nothing was tried.
        omissions: what was left out of the graph, as a run would.
    """

    uri: str
    reference_width: int
    width: int
    node_type: str
    agreement: Agreement | None
    difference: Difference | None
    omissions: Omissions = field(default_factory=Omissions)

    @property
    def agrees(self) -> bool:
        """Whether all rows are within the tolerance."""
        return self.agreement is not None and not self.agreement.beyond

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        difference = self.difference
        nearest = None if difference is None else difference.nearest
        return {
            "agrees": self.agrees,
            "reference_width": self.reference_width,
            "width": self.width,
            **({} if self.agreement is None else self.agreement.to_json()),
            "layer": None if difference is None else difference.layer,
            "changes": [] if difference is None else [_plain(fix) for fix in difference.fixes],
            "nearest": None if nearest is None else _plain(nearest),
            "tried": [] if difference is None else list(difference.tried),
            UNTRAINED: [] if difference is None else list(difference.untrained),
            "omissions": self.omissions.to_json(),
        }

    def __str__(self) -> str:
        """The verdict in lines, as an error's message has it."""
        if self.agreement is not None:
            return "\n".join([self.agreement.summary, *_explained(self.difference)])
        of = f" for node type {self.node_type!r}" if self.node_type else ""
        first = (
            f"the vectors of {self.uri} have {self.reference_width} columns, but the model gives"
            f" {self.width}{of}."
        )
        return "\n".join([first, *_explained(self.difference)])


def _plain(tried: Tried) -> dict[str, Any]:
    layers = tried.change.layers if isinstance(tried.change, Change) else ()
    return {"layers": layers, "change": str(tried), "error": tried.error}


def _explained(difference: Difference | None) -> list[str]:
    """Which change of the description would help."""
    if difference is None:
        return []
    if difference.of_data:
        return _of_data(difference)
    if difference.fixes:
        which = "This change" if len(difference.fixes) == 1 else "Each of these changes"
        return [
            f"The first layer that can differ is layers[{difference.layer}]. {which} makes all"
            " rows agree:",
            *(f"  {tried}" for tried in difference.fixes),
        ]
    lines = [
        "No single change of the description makes them agree, so the layer is not known:"
        " there are several mistakes, or it is the graph (direction, self-loops, duplicates,"
        " weights), the features (order, scaling) or other weights."
    ]
    if difference.nearest is not None:
        lines.append(f"The change that helps most leaves {difference.nearest.error:.3g}:")
        lines.append(f"  {difference.nearest}")
    return lines


def _of_data(difference: Difference) -> list[str]:
    """Which change of the manifest would help, or what was tried, and what was not."""
    first = "The model was proved to be the module."
    if difference.fixes:
        several = len(difference.fixes) > 1
        which = "Each of these changes" if several else "This change"
        return [
            f"{first} {which} of the data makes all rows agree:",
            *(f"  {tried}" for tried in difference.fixes),
        ]
    tried = "No change of the data could be tried."
    if difference.tried:
        tried = f"Tried: {', '.join(difference.tried)}; they don't explain it."
    if difference.untrained:
        tried += f" In the model {untrained_norms(difference.untrained)}."
    lines = [
        f"{first} {tried}",
        "Not tried: a reference made in train mode (dropout, batch norms with the batch's"
        " statistics: call eval() first) or by other weights or statistics than were exported,"
        " other edges or features than the reference's, ids numbered in another way.",
    ]
    if difference.nearest is not None:
        nearest = f"The change that helps most leaves {difference.nearest.error:.3g}: "
        lines.append(f"{nearest}{difference.nearest}")
    return lines


def check_job(
    job: EmbeddingJob,
    against: str,
    *,
    node_type: str | None = None,
    result: str | None = None,
    columns: ReferenceColumns | None = None,
    tolerance: float | None = None,
    search: bool = True,
    on_progress: OnProgress = lambda _event: None,
) -> Checked:
    """Compute the embeddings of all nodes with all neighbours and compare some with a reference.

    Needs memory for the whole graph in this process. What can be refused by the widths of the
    inputs and by their first rows is refused before all of them is read.

    Args:
        against: URI of the reference.
        node_type: of its vectors; may be left out where the model gives embeddings of one type.
        result: of the model, that its vectors are of; may be left out where there is one.
        tolerance: as a share of the reference's largest magnitude; default: the model's.
        search: whether to look for the cause of a difference.

    Raises:
        EmbertideError: inputs, model or reference cannot be read.
    """
    storage = open_storage(job.spec.storage)
    if missing := [entry for entry in missing_inputs(storage, job) if not entry.optional]:
        raise InputsNotReady(f"inputs are not ready: {describe(missing)}")
    job = _full(job)
    exchange = Exchange(Grid(GridShape.of(1, 1)), torch.device("cpu"), NullRecorder())
    ctx = RunContext(job, exchange, storage, on_progress, threads=torch.get_num_threads())
    inputs = list_inputs(storage, job)
    files = read_job_model(storage, job, inputs)
    program = files.program()
    key = chosen_result(job, program, node_type, result)
    node = job.spec.input.node(match_types(job, program)[node_type_of(key)])
    several = len(job.spec.input.nodes) > 1
    FoldersAbove(storage).refuse_tables([against])
    splits = _split_reference(storage, against, node, columns, several=several)
    _check_inputs(storage, job, inputs, program)

    def prepared(job: EmbeddingJob, inputs: Inputs, report: OnProgress) -> Check:
        """The check on the data of a job, which may describe the same files in another way."""
        compared = replace(inputs.by_nodes[node.name], references={name_of(key): splits})
        inputs = replace(inputs, by_nodes=inputs.by_nodes | {node.name: compared})
        return prepare_check(replace(ctx, job=job, report=report), inputs, files, columns, key)

    def rows(changed: EmbeddingJob) -> torch.Tensor:
        quiet = prepared(changed, list_inputs(storage, changed), lambda _event: None)
        return quiet.rows(program)

    check = prepared(job, inputs, on_progress)
    limit = files.reference_tolerance if tolerance is None else tolerance
    checked = _check(check, files, limit, search, on_progress)
    if search and isinstance(files, ExportedModel) and checked.agreement and not checked.agrees:
        on_progress(Progress("infer", message="looking for the cause"))
        expected, error = torch.from_numpy(check.expected.reference.values), checked.agreement
        with TemporaryDirectory(prefix="embertide-check-") as folder:
            data = DataFiles(storage, job, inputs, Path(folder), _spread(check, inputs))
            difference = find_cause(job, rows, expected, error.largest_error, limit, data)
        uri = job.spec.model.uri
        untrained = () if uri is None else tuple(read_untrained_norms(storage, uri))
        checked = replace(checked, difference=replace(difference, untrained=untrained))
    return replace(checked, node_type=node.name if several else "")


def _spread(check: Check, inputs: Inputs) -> dict[str, tuple[list[float], list[float]]]:
    """Node type -> mean and standard deviation of each of its features; none of constant ones."""
    spread = {}
    for name, loaded in check.prepared.loaded.items():
        node_type = check.prepared.names[name]
        values = loaded.data[:, : inputs.by_nodes[node_type].feature_width].double()
        scale = values.std(0, correction=0)
        if len(scale) and bool((scale > 0).all()):
            spread[node_type] = (values.mean(0).tolist(), scale.tolist())
    return spread


def _split_reference(
    storage: Storage,
    uri: str,
    node: NodeInput,
    columns: ReferenceColumns | None,
    *,
    several: bool,
) -> list[Split]:
    """The reference's splits; where there are several node types, errors name the type."""
    try:
        return split_reference(storage, uri, node.ids, columns)
    except InputError as error:
        if not several:
            raise
        raise InputError(
            f"{error}. It is read as vectors of node type {node.name!r}; --node-type sets"
            " another one"
        ) from error


def _check_inputs(storage: Storage, job: EmbeddingJob, inputs: Inputs, program: Program) -> None:
    """Refuse inputs of another width than the model's, and those with bad first rows."""
    whole = with_tables(job, inputs.model_tables)
    counts = {node.name: inputs.by_nodes[node.name].count(node) for node in whole.spec.input.nodes}
    check_model(whole, inputs, program, GridShape.of(1, 1), counts)
    read_samples(storage, narrow(whole, program).spec.input, inputs)


def _check(
    check: Check, files: Model, tolerance: float, search: bool, on_progress: OnProgress
) -> Checked:
    program, reference = files.program(), check.expected.reference
    width = program.widths[program.results[check.key]]
    fits = width == reference.values.shape[1]
    agreement = check.compare(program, tolerance) if fits else None
    difference = None
    differs = agreement is None or agreement.beyond
    # An exported program has its proof, so there the data is the suspect.
    if search and differs and isinstance(files, ModelFiles):
        on_progress(Progress("infer", message="looking for the cause"))
        values = torch.from_numpy(reference.values)
        difference = first_difference(files, check.rows, values, tolerance=tolerance, key=check.key)
    return Checked(
        uri=reference.uri,
        reference_width=reference.values.shape[1],
        width=width,
        node_type="",
        agreement=agreement,
        difference=difference,
        omissions=check.omissions,
    )


def _full(job: EmbeddingJob) -> EmbeddingJob:
    """The job with all neighbours and whole values, as the user's own forward has them, without
    pairs."""
    inference = job.spec.inference.model_copy(update={"fanout": "full", "rows": "float32"})
    data = job.spec.input.model_copy(update={"pairs": None})
    spec = job.spec.model_copy(update={"inference": inference, "input": data})
    return job.model_copy(update={"spec": spec})
