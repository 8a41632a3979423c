"""From embeddings to a published version: compare with references and the current version, write
parts, judge, publish."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from embertide.context import RunContext
from embertide.engine.pipeline.keeping import note_given_back
from embertide.engine.pipeline.prepare import Prepared
from embertide.engine.planning.model_tables import UNREAD
from embertide.engine.planning.order import WorkOrder
from embertide.engine.planning.scoring import scored_results
from embertide.engine.stages.compare import compare_rows, judge
from embertide.engine.stages.delta import begin_chain, write_deltas
from embertide.engine.stages.publish import ResultRows, WrittenResult, publish_version, write_parts
from embertide.engine.stages.scores import End, write_pair_scores
from embertide.engine.stages.verify import (
    NONE_CHOSEN,
    SKIPPED,
    allowed_error,
    compare_with_reference,
    only_chosen,
    row_error,
)
from embertide.facts.telemetry.clock import Clock
from embertide.facts.telemetry.comparison import Comparison, with_deltas
from embertide.facts.telemetry.report import RunFacts
from embertide.facts.telemetry.self_check import SelfCheck
from embertide.io.versions.catalog import VersionInfo
from embertide.io.versions.keyed import taken
from embertide.spec.job_digest import job_digest
from embertide.spec.result_names import label_of, name_of, node_type_of, result_key
from embertide.spec.version_names import version_uri


@dataclass(frozen=True, kw_only=True)
class Published:
    """What a rank knows of the version.

    Attributes:
        version, comparison: on rank 0; None on the others.
        facts: of the run, with what rows of another type than float32 made of the embeddings.
        warnings: sentences for the run's user.
    """

    version: VersionInfo | None
    comparison: Comparison | None
    facts: RunFacts
    warnings: list[str]


def publish(
    prepared: Prepared,
    order: WorkOrder,
    embeddings: dict[str, torch.Tensor],
    checked: SelfCheck,
    clock: Clock,
) -> Published:
    """Publish all results of all node types as one version. Collective: every rank must call.

    Args:
        embeddings: key of a result -> [N/(P*M), D'] float32.
        checked: what computing rows of the layers a second time gave.

    Raises:
        EmbertideError: embeddings differ from a reference, or the version cannot be written.
    """
    ctx, row_type = prepared.ctx, prepared.ctx.job.spec.inference.rows
    program = prepared.plan.program
    with clock.stage("publish"):
        compared = _compare(prepared, embeddings)
        facts = replace(prepared.facts, row_error=row_error(compared.values(), row_type))
        own = [_own_rows(prepared, key, values) for key, values in embeddings.items()]
        chain, uri = begin_chain(ctx), version_uri(ctx.job.spec.published_uri, order.version)
        comparison = compare_rows(ctx, program.digest, ctx.graph_facts.read["edges"], own, chain)
        deltas = write_deltas(ctx, uri, own, chain, comparison)
        del chain
        # Before the parts, after which the version may become visible.
        scores = _write_scores(prepared, uri, embeddings)
        parts = write_parts(ctx, uri, own)
        version, warnings = None, [*prepared.warnings, *_not_read(prepared)]
        if comparison is not None:
            verdict = judge(ctx, prepared.inputs, comparison, ctx.graph_facts.omissions, compared)
            warnings += [*verdict.warnings, *([comparison.why] if comparison.why else [])]
            counts = [_count(prepared, rows.node.name) for rows in own]
            written = [
                WrittenResult(
                    key=rows.key,
                    node=rows.node,
                    nodes=count,
                    width=rows.width,
                    parts=of_result,
                    compared=compared.get(key),
                    delta=deltas.get(rows.key),
                )
                for key, rows, count, of_result in zip(embeddings, own, counts, parts, strict=True)
            ]
            by_label = {label_of(key): delta for key, delta in deltas.items()}
            comparison = with_deltas(comparison, by_label)
            trust = {
                "comparison": comparison.to_json(),
                "gate": verdict.to_json(),
                "selfCheck": checked.to_json(),
                **_refreshed(ctx, order),
                **_targets(prepared),
            }
            digest = job_digest(prepared.job)
            version = publish_version(
                ctx, order, program, digest, written, trust, verdict.held, scores
            )
    return Published(version=version, comparison=comparison, facts=facts, warnings=warnings)


def _count(prepared: Prepared, of_type: str) -> int:
    """How many rows a version has of each result of a node type."""
    if prepared.chosen is not None:
        (rows,) = prepared.chosen.values()
        return int(rows.sum())
    return prepared.graph.located[of_type].ranges.nodes


def _targets(prepared: Prepared) -> dict[str, Any]:
    """What the manifest has of the nodes whose rows alone are there; {} where all are."""
    if prepared.chosen is None:
        return {}
    facts = prepared.ctx.graph_facts.chosen
    return {
        "targets": {
            "rows": facts.rows,
            "of": facts.all_rows,
            "edges": facts.edges,
            "allEdges": facts.all_edges,
            **({"why": facts.why} if facts.why else {}),
        }
    }


def _refreshed(ctx: RunContext, order: WorkOrder) -> dict[str, Any]:
    """What the manifest has of rows that were taken over, and of those that are kept by now."""
    facts = ctx.graph_facts.refresh
    if facts.keeps and ctx.grid.rank == 0:
        note_given_back(ctx, facts.keeps["key"])
    entry: dict[str, Any] = {"mode": facts.mode, "full": facts.full or order.version}
    if facts.mode == "incremental":
        entry |= {"from": facts.base, "rows": facts.rows, "of": facts.all_rows}
    if facts.tolerance:
        entry |= {
            "tolerance": facts.tolerance,
            "maxError": facts.max_error,
            "measured": facts.measured,
            "error": facts.error,
        }
    if not facts.keeps:
        return {"refresh": entry}
    basis = {"basis": facts.basis} if facts.basis else {}
    return {"refresh": entry, "layers": {**facts.keeps, **basis}}


def _write_scores(
    prepared: Prepared, uri: str, embeddings: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """Write the scores of the pairs; what the manifest has of them, {} without pairs.

    Collective: every rank must call.
    """
    pairs, decoder, ctx = prepared.pairs, prepared.decoder, prepared.ctx
    if pairs is None or decoder is None:
        return {}
    keys = scored_results(ctx.job, prepared.plan.program, pairs.given)
    located = prepared.graph.located
    source, destination = (
        End(located[prepared.names[node_type_of(key)]].ranges, embeddings[key]) for key in keys
    )
    parts = write_pair_scores(ctx, uri, pairs, decoder, (source, destination))
    return {
        "rows": sum(part.rows for part in parts),
        "dim": decoder.width,
        "score": pairs.given.score,
        "results": [name_of(key) for key in keys],
        "parts": [asdict(part) for part in parts],
    }


def _compare(prepared: Prepared, embeddings: dict[str, torch.Tensor]) -> dict[str, dict[str, Any]]:
    """Compare with the references that there are. Collective: every rank must call."""
    ctx, facts = prepared.ctx, prepared.facts
    row_type = ctx.job.spec.inference.rows
    tolerance = allowed_error(prepared.reference_tolerance, row_type, facts.graph_layers)
    located = prepared.graph.located
    return {
        key: compare_with_reference(
            ctx,
            expected,
            located[prepared.names[node_type_of(key)]].ranges,
            embeddings[key],
            tolerance,
            _own_chosen(prepared, key),
        )
        for key, every in prepared.expected.items()
        if (expected := only_chosen(every, _chosen_of(prepared, key))) is not None
    }


def _chosen_of(prepared: Prepared, key: str) -> torch.Tensor | None:
    """[N] bool, the nodes of a result whose rows are there; None: all are."""
    return None if prepared.chosen is None else prepared.chosen[node_type_of(key)]


def _own_chosen(prepared: Prepared, key: str) -> torch.Tensor | None:
    """[N/(P*M)] bool, the same of our sub-range."""
    chosen = _chosen_of(prepared, key)
    if chosen is None:
        return None
    ranges = prepared.graph.located[prepared.names[node_type_of(key)]].ranges
    first, last = ranges.worker(prepared.ctx.grid.rank)
    return chosen[first:last]


def _own_rows(prepared: Prepared, key: str, embeddings: torch.Tensor) -> ResultRows:
    """Our rows of a result, as they are written: in a graph of one type without the type's name."""
    given, of_type = prepared.ctx.job.spec.input, prepared.names[node_type_of(key)]
    published = result_key(of_type if len(given.nodes) > 1 else "", name_of(key))
    names, chosen = prepared.graph.located[of_type].names, _own_chosen(prepared, key)
    if chosen is not None:
        names = taken(names, chosen.numpy())
    return ResultRows(given.node(of_type), published, names, embeddings)


def _not_read(prepared: Prepared) -> list[str]:
    """Warnings of references that were not compared, and of tables that features replace."""
    inputs = prepared.inputs
    full = prepared.ctx.job.spec.inference.fanout == "full"
    skipped = [split.uri for of_type in inputs.by_nodes.values() for split in of_type.reference]
    apart = [
        NONE_CHOSEN.format(uri=every.reference.uri)
        for key, every in prepared.expected.items()
        if only_chosen(every, _chosen_of(prepared, key)) is None
    ]
    return [
        *apart,
        *(SKIPPED.format(uri=uri) for uri in dict.fromkeys([] if full else skipped)),
        *(UNREAD.format(node_type=name, uri=table) for name, table in inputs.unread_tables.items()),
    ]
