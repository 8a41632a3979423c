"""What gives a job's pairs their scores: the model's decoder, or a product of both rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from embertide.engine.planning.inputs import Inputs, rows_of
from embertide.engine.planning.matching import match_types
from embertide.engine.planning.sizes import TEXT_FORMATS
from embertide.errors import ModelError
from embertide.facts.telemetry.report import PlannedTraffic
from embertide.footprint import FLOAT_BYTES, ID_BYTES
from embertide.program.steps import Program
from embertide.program.steps.decoder import BATCH_VALUES, Decoder, built_in
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.pairs import PairInput
from embertide.spec.result_names import UNNAMED, name_of, node_type_of

_ID_BYTES = 8
"""An id in the files; strings take more."""
_TEXT_ROW_BYTES = 14
"""A line of text, as a guess."""


def scoring(job: EmbeddingJob, program: Program) -> Decoder | None:
    """The decoder of a job's pairs; None where it has no pairs.

    Args:
        program: that gives what the job publishes.

    Raises:
        ModelError: a node type of the pairs gets no results, or others than the decoder reads; or
            the model has no decoder.
    """
    pairs = job.spec.input.pairs
    if pairs is None:
        return None
    widths = [program.widths[program.results[key]] for key in scored_results(job, program, pairs)]
    if pairs.score != "model":
        return built_in(pairs.score, widths[0], widths[1])
    decoder = program.decoder
    if decoder is None:
        raise ModelError(
            f"spec.input.pairs.score is model, but {job.spec.model.location} has no decoder;"
            " export it with --decoder, or set score: dot or cosine"
        )
    if widths != [decoder.source, decoder.destination]:
        raise ModelError(
            f"the rows of spec.input.pairs have {widths[0]} and {widths[1]} columns, but the"
            f" decoder of {job.spec.model.location} reads {decoder.source} and"
            f" {decoder.destination}; spec.input.pairs.result names the result that it reads"
        )
    return decoder


@dataclass(frozen=True)
class PlannedScores:
    """What the scores of a job's pairs take.

    Attributes:
        memory: stage -> bytes of a worker.
    """

    output_bytes: int = 0
    memory: Mapping[str, int] = field(default_factory=dict)
    traffic: list[PlannedTraffic] = field(default_factory=list)


def planned_scores(
    job: EmbeddingJob, inputs: Inputs, program: Program, workers: int
) -> PlannedScores:
    """What a run will hold, send and write of scores; of text a guess, by its size.

    Raises:
        ModelError: as :func:`scoring`.
    """
    decoder = scoring(job, program)
    if decoder is None:
        return PlannedScores()
    rows = planned_pairs(job, inputs)
    own, scores = -(-rows // workers), FLOAT_BYTES * decoder.width
    ids = own * (2 * _ID_BYTES + 2 * ID_BYTES)
    batch = min(
        own, max(1, BATCH_VALUES // (decoder.values + decoder.source + decoder.destination))
    )
    lines = batch * FLOAT_BYTES * (decoder.values + 3 * (decoder.source + decoder.destination))
    memory = dict.fromkeys(("ingest", "csr", "infer"), ids)
    memory["publish"] = ids + own * (scores + _ID_BYTES) + lines
    if workers == 1:
        return PlannedScores(rows * (2 * _ID_BYTES + scores), memory)
    rounds, peers = -(-own // batch), workers - 1
    each = ID_BYTES + FLOAT_BYTES * decoder.source, ID_BYTES + FLOAT_BYTES * decoder.destination
    sent = own * sum(each) * peers // workers + rounds * peers * 4 * 8
    messages = rounds * peers * 8
    traffic = [PlannedTraffic("world", "scores", -1, sent, messages)]
    return PlannedScores(rows * (2 * _ID_BYTES + scores), memory, traffic)


def planned_pairs(job: EmbeddingJob, inputs: Inputs) -> int:
    """How many pairs there are; of text a guess, by its size."""
    pairs = job.spec.input.pairs
    total = rows_of(inputs.pairs)
    text = pairs is not None and pairs.format in TEXT_FORMATS
    return -(-total // _TEXT_ROW_BYTES) if text else total


def scored_results(job: EmbeddingJob, program: Program, pairs: PairInput) -> list[str]:
    """The keys of the results whose rows the pairs read: of the sources, of the destinations.

    Raises:
        ModelError: a node type gets no results, or several and none is chosen.
    """
    names = {manifest: own for own, manifest in match_types(job, program).items()}
    ends = {"sourceType": pairs.source_type, "destinationType": pairs.destination_type}
    return [_key_of(program, names, field, name, pairs) for field, name in ends.items()]


def _key_of(
    program: Program, names: dict[str, str], field: str, node_type: str, pairs: PairInput
) -> str:
    own = names.get(node_type)
    keys = {name_of(k) or UNNAMED: k for k in program.results if node_type_of(k) == own}
    if not keys:
        raise ModelError(
            f"spec.input.pairs.{field} is {node_type!r}, of which no results are published; pairs"
            " read published rows"
        )
    if pairs.result is None and len(keys) == 1:
        return next(iter(keys.values()))
    if pairs.result not in keys:
        name = "unset" if pairs.result is None else repr(pairs.result)
        raise ModelError(
            f"spec.input.pairs.result is {name}; must be one of {', '.join(keys)}, the published"
            f" results of node type {node_type!r}"
        )
    return keys[pairs.result]
