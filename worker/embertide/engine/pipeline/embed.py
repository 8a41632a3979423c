"""The embeddings of some nodes: all inputs are read, and only the edges that these need gone over.

What is computed has the bits of a run of one worker; where a model multiplies along edges it
differs by rounding. Where a failed attempt of the job has kept layers, their rows are read and the
layers before them are not computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from embertide.context import RunContext
from embertide.engine.pipeline.compute import compute
from embertide.engine.pipeline.prepare import Prepared, Reading, prepare
from embertide.engine.planning.base_version import kept_key, touched
from embertide.engine.planning.inputs import Inputs, layer_key, list_inputs
from embertide.engine.planning.matching import chosen_result, match_types, read_job_model
from embertide.engine.planning.readiness import describe, missing_inputs
from embertide.engine.stages.features import LoadedNodes
from embertide.engine.stages.infer import Keeping, Request
from embertide.engine.stages.verify import Expected
from embertide.errors import EmbertideError, InputError, InputsNotReady
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.memory import MemoryWatch
from embertide.facts.telemetry.progress import OnProgress
from embertide.facts.telemetry.recorder import NullRecorder
from embertide.graph.exchange import Exchange
from embertide.grid import Grid
from embertide.io.storage.opening import open_storage
from embertide.io.versions.layers.attempts import Attempt
from embertide.io.versions.layers.store import LayerStore
from embertide.kernels.ids import Ids
from embertide.program.steps import Program
from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.nodes import NodeInput
from embertide.spec.result_names import node_type_of
from embertide.spec.version_names import new_version

_SHOWN = 5
OTHER_INPUTS = (
    "the rows that the current version has kept are not used: inputs, model or job have changed"
)
Id = int | str


@dataclass(frozen=True)
class OverFacts:
    """What rows rest on that were computed over the kept rows of others.

    Attributes:
        version: whose rows neighbours have, and their degrees.
        tolerance: by which these rows may be off, relative to their norms; 0: they are exact.
        new: nodes beside those that are asked for of which rows were computed, since they are new.
        newer: neighbours whose features are others than those of the version.
    """

    version: str
    tolerance: float = 0.0
    new: int = 0
    newer: int = 0


@dataclass(frozen=True, kw_only=True)
class SomeEmbeddings:
    """The embeddings of some nodes.

    Attributes:
        ids: as they were asked for, each once.
        vectors: [k, D'] float32.
        edges: how many edges all layers went over; ``all_edges`` of how many, 0: unknown.
        resumed: the kept layer that this began after; 0: none. ``resumed_of`` is the run that had
            kept it.
        unused: why kept rows of the current version were not used; "": they were, or there are
            none.
        warnings: sentences for the user.
        over: what the rows rest on where they were computed over the kept rows of others; None:
            they are those of the inputs.
        unchanged: they are the rows of the result that were kept; nothing was computed.
    """

    ids: list[Id]
    vectors: npt.NDArray[np.float32]
    edges: int
    all_edges: int
    resumed: int
    resumed_of: str
    unused: str
    warnings: list[str]
    over: OverFacts | None = None
    unchanged: bool = False


def embed_job(
    job: EmbeddingJob,
    ids: Sequence[Id],
    *,
    node_type: str | None = None,
    result: str | None = None,
    on_progress: OnProgress = lambda _event: None,
) -> SomeEmbeddings:
    """Compute the embeddings of some nodes as a run of one worker does; publishes nothing.

    Needs memory for the whole graph in this process.

    Args:
        node_type: which type's; may be left out where the model gives embeddings of one.
        result: which of the model's results; likewise.

    Raises:
        InputError: an id is not among the nodes; names the first ones.
        EmbertideError: inputs or model cannot be read.
    """
    ctx = one_worker(job, on_progress)
    inputs = list_inputs(ctx.storage, job)
    model = read_job_model(ctx.storage, job, inputs)
    key = chosen_result(job, model.program(), node_type, result)
    node = job.spec.input.node(match_types(job, model.program())[node_type_of(key)])
    asked, dense = list(dict.fromkeys(ids)), list[npt.NDArray[np.int64]]()
    check_kinds(asked, node)

    def find(
        _ctx: RunContext, _inputs: Inputs, _program: Program, nodes: Mapping[str, LoadedNodes]
    ) -> dict[str, Expected]:
        dense.append(find_ids(asked, nodes[node_type_of(key)]))
        return {}

    clock = Clock(MemoryWatch(), on_progress)
    reading = Reading(
        model=lambda _ctx: model,
        choose=lambda _ctx, program: program.only({key: program.results[key]}),
        references=find,
    )
    prepared = prepare(ctx, inputs, clock, reading)
    layers = layer_key(job, inputs)
    return _embed(prepared, clock, key, asked, torch.from_numpy(dense[0]), layers)


def one_worker(job: EmbeddingJob, on_progress: OnProgress) -> RunContext:
    """This process as the only worker of a run, on its CPU.

    Raises:
        InputsNotReady: an input that is waited for is not there.
    """
    storage = open_storage(job.spec.storage)
    if missing := [entry for entry in missing_inputs(storage, job) if not entry.optional]:
        raise InputsNotReady(f"inputs are not ready: {describe(missing)}")
    exchange = Exchange(Grid(GridShape.of(1, 1)), torch.device("cpu"), NullRecorder())
    return RunContext(job, exchange, storage, on_progress, threads=torch.get_num_threads())


def check_kinds(ids: Sequence[Id], node: NodeInput) -> None:
    """Refuse ids of another type than the nodes'."""
    text = node.ids == "string"
    for item in ids:
        if isinstance(item, str) != text:
            kind = "texts" if text else "whole numbers"
            raise InputError(f"--ids has {item!r}, but ids of {node.name!r} are {kind}")
        if isinstance(item, int) and not -(1 << 63) <= item < 1 << 63:
            raise InputError(f"--ids has {item}, which is no id: they have at most 64 bits")


def as_ids(ids: Sequence[Id], node: NodeInput) -> Ids:
    """Ids as readers give them."""
    if node.ids == "string":
        return pa.array(ids, pa.large_string())
    return np.array(ids, dtype=np.int64)


def find_ids(ids: Sequence[Id], nodes: LoadedNodes) -> npt.NDArray[np.int64]:
    """[k] dense ids.

    Raises:
        InputError: some are not there.
    """
    dense = np.asarray(nodes.ids.find(as_ids(ids, nodes.node))).astype(np.int64)
    unknown = [item for item, at in zip(ids, dense, strict=True) if at < 0]
    if unknown:
        raise unknown_ids(unknown, nodes.node.listed_in, nodes.ids.count)
    return dense


def unknown_ids(unknown: Sequence[Id], place: str, count: int) -> InputError:
    """The error for ids that are no nodes.

    Args:
        place: where the nodes are listed, of which there are ``count``.
    """
    shown = ", ".join(repr(item) for item in unknown[:_SHOWN])
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    return InputError(
        f"--ids has {shown}{more}, but {place} has no such node among its {count}; ask for ids"
        " that are there"
    )


def _embed(
    prepared: Prepared,
    clock: Clock,
    key: str,
    ids: list[Id],
    dense: torch.Tensor,
    layers: str,
) -> SomeEmbeddings:
    """Compute the rows of some dense ids of a result.

    Args:
        layers: the key under which a run of the job keeps them.
    """
    ctx, job = prepared.ctx, prepared.ctx.job
    located = prepared.graph.located[prepared.names[node_type_of(key)]]
    rows = torch.zeros(located.ranges.nodes, dtype=torch.bool)
    rows[dense] = True
    version, output = new_version(), job.spec.published_uri
    layer_store = LayerStore(ctx.storage, output, layers, version)
    uris = [item["uri"] for item in prepared.inputs.of_layers()]
    with Attempt(ctx.storage, output, layer_store.key, version) as attempt:
        keeping = Keeping(
            layer_store, (), attempt.begin, lambda since: touched(ctx.storage, since, uris)
        )
        request = Request(chosen={node_type_of(key): rows}, keeping=keeping)
        computed = compute(prepared, clock, request)[key]
    facts = ctx.graph_facts
    places = torch.cumsum(rows, 0)[dense] - 1
    return SomeEmbeddings(
        ids=ids,
        vectors=computed[places].numpy(),
        edges=facts.chosen.edges,
        all_edges=facts.chosen.all_edges,
        resumed=facts.kept.resumed,
        resumed_of=facts.kept.version,
        unused="" if facts.kept.resumed else _why_unused(ctx, layers),
        warnings=[*facts.omissions.sentences, *facts.kept.problems, *prepared.warnings],
    )


def _why_unused(ctx: RunContext, layers: str) -> str:
    """Why the rows that the current version has kept were not used; "" where it has kept none."""
    try:
        kept = kept_key(ctx.storage, ctx.job.spec.published_uri)
    except EmbertideError as error:
        return f"the current version cannot be read: {error}"
    return OTHER_INPUTS if kept and kept != layers else ""
